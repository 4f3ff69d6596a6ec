// What every backend does, in closed-form expectations of rank and size. Included by a test for each backend.
#pragma once

#include <gtest/gtest.h>
#include <numeric>

#include "gantry/core/error.h"
#include "ranks.h"

namespace gantry::testing {

// The group of the first `size` ranks of the job, given to `body` on its members.
inline void on_first_ranks(World& world, ProcessGroupMesh& mesh, int size,
                           const std::function<void(ProcessGroup&)>& body) {
  std::vector<int> ranks(size);
  std::iota(ranks.begin(), ranks.end(), 0);
  auto groups = mesh.make_groups("first " + std::to_string(size), {ranks});
  if (world.rank() < size) body(*groups.front());
  mesh.world_group().barrier().wait();
}

// Value of element i of rank r: small whole numbers, exact in every dtype.
inline torch::Tensor values(int rank, std::vector<std::int64_t> shape, torch::ScalarType type) {
  std::int64_t elements = 1;
  for (const auto size : shape) elements *= size;
  return ((torch::arange(elements, torch::kInt64) + rank) % 8).to(type).view(shape);
}

inline torch::Tensor summed(int ranks, const std::vector<std::int64_t>& shape, torch::ScalarType type) {
  torch::Tensor sum = values(0, shape, torch::kInt64);
  for (int rank = 1; rank < ranks; ++rank) sum = sum + values(rank, shape, torch::kInt64);
  return sum.to(type);
}

inline Sizes uneven_sizes(int ranks) {  // 0, 1, 2, ... rows
  Sizes sizes(ranks);
  std::iota(sizes.begin(), sizes.end(), 0);
  return sizes;
}

inline std::int64_t rows_before(const Sizes& sizes, int rank) {
  return std::accumulate(sizes.begin(), sizes.begin() + rank, std::int64_t{0});
}

inline void check_all_reduce(ProcessGroup& group, torch::ScalarType type) {
  for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{0}, {1}, {7, 3}, {40000}, {300, 1000}}) {
    torch::Tensor tensor = values(group.rank(), shape, type);
    group.all_reduce(tensor).wait();
    EXPECT_TRUE(torch::equal(tensor, summed(group.size(), shape, type))) << shape;
  }
  torch::Tensor transposed = values(group.rank(), {6, 4}, type).t();
  group.all_reduce(transposed).wait();
  EXPECT_TRUE(torch::equal(transposed, summed(group.size(), {6, 4}, type).t()));
  torch::Tensor most = torch::full({5}, group.rank(), type), least = most.clone();
  group.all_reduce(most, ReduceOp::kMax).wait();
  group.all_reduce(least, ReduceOp::kMin).wait();
  EXPECT_TRUE(torch::equal(most, torch::full({5}, group.size() - 1, type)));
  EXPECT_TRUE(torch::equal(least, torch::zeros({5}, type)));
}

inline void check_gathers(ProcessGroup& group, torch::ScalarType type) {
  for (const Sizes& sizes : {Sizes(group.size(), 3), uneven_sizes(group.size()), Sizes(group.size(), 0)}) {
    const std::int64_t total = rows_before(sizes, group.size());
    const torch::Tensor whole = values(0, {total, 5}, type);
    torch::Tensor out = torch::empty({total, 5}, type);
    group.all_gather(out, whole.narrow(0, rows_before(sizes, group.rank()), sizes[group.rank()]), sizes).wait();
    EXPECT_TRUE(torch::equal(out, whole));

    torch::Tensor part = torch::empty({sizes[group.rank()], 5}, type);
    group.reduce_scatter(part, values(group.rank(), {total, 5}, type), sizes).wait();
    EXPECT_TRUE(torch::equal(
        part, summed(group.size(), {total, 5}, type).narrow(0, rows_before(sizes, group.rank()), sizes[group.rank()])));
  }
}

inline void check_broadcast_and_all_to_all(ProcessGroup& group, torch::ScalarType type) {
  for (int root = 0; root < group.size(); ++root) {
    torch::Tensor tensor = values(group.rank() == root ? 3 : 0, {11, 2}, type);
    group.broadcast(tensor, root).wait();
    EXPECT_TRUE(torch::equal(tensor, values(3, {11, 2}, type)));
  }
  // Rank r sends r + q rows full of 10 r + q to rank q.
  const int rank = group.rank(), size = group.size();
  Sizes sent, received;
  std::vector<torch::Tensor> in, expected;
  for (int peer = 0; peer < size; ++peer) {
    sent.push_back(rank + peer);
    received.push_back(peer + rank);
    in.push_back(torch::full({rank + peer, 2}, 10 * rank + peer, type));
    expected.push_back(torch::full({peer + rank, 2}, 10 * peer + rank, type));
  }
  torch::Tensor out = torch::empty({rows_before(received, size), 2}, type);
  group.all_to_all(out, torch::cat(in), received, sent).wait();
  EXPECT_TRUE(torch::equal(out, torch::cat(expected)));
}

inline void check_messages(ProcessGroup& group, torch::ScalarType type) {
  const int next = (group.rank() + 1) % group.size(), previous = (group.rank() + group.size() - 1) % group.size();
  const auto tag = [](int entry) { return Tag{Tag::Kind::kUser, 1, 2, entry}; };
  std::vector<Work> sends;
  sends.push_back(group.send(values(group.rank(), {3, 4}, type), next, tag(0)));
  sends.push_back(group.send(torch::Tensor(), next, tag(1)));             // absent
  sends.push_back(group.send(torch::empty({0, 4}, type), next, tag(2)));  // empty
  sends.push_back(group.send(values(group.rank(), {4, 3}, type).t(), next, tag(3)));
  // Taken in another order than sent: the tag decides.
  EXPECT_TRUE(torch::equal(group.recv({{3, 4}, type}, previous, tag(3)).result(), values(previous, {4, 3}, type).t()));
  EXPECT_FALSE(group.recv({{3, 4}, type}, previous, tag(1)).result().defined());
  EXPECT_EQ(group.recv({{0, 4}, type}, previous, tag(2)).result().numel(), 0);
  EXPECT_TRUE(torch::equal(group.recv({{3, 4}, type}, previous, tag(0)).result(), values(previous, {3, 4}, type)));
  for (auto& work : sends) work.wait();
}

inline void check_outstanding(ProcessGroup& group) {
  std::vector<torch::Tensor> tensors;
  std::vector<Work> works;
  for (int i = 0; i < 20; ++i) {
    tensors.push_back(torch::full({1 + 1000 * i}, group.rank() + i, torch::kFloat64));
    works.push_back(group.all_reduce(tensors.back()));
  }
  for (int i = 19; i >= 0; --i) {
    works[i].wait();
    const double expected = group.size() * (group.size() - 1) / 2.0 + group.size() * i;
    EXPECT_TRUE(torch::equal(tensors[i], torch::full({1 + 1000 * i}, expected, torch::kFloat64)));
  }
}

// Sums go by rank: ((x0 + x1) + x2) + ..., rounded in the tensor's precision each time, or once from float32.
inline void check_order(ProcessGroup& group) {
  const auto of = [](int rank) {
    return torch::full({50000}, rank % 2 ? 1e8f : -1e8f) + 0.3f * static_cast<float>(rank + 1);
  };
  torch::Tensor expected = of(0);
  for (int rank = 1; rank < group.size(); ++rank) expected = expected + of(rank);
  torch::Tensor sum = of(group.rank());
  group.all_reduce(sum).wait();
  EXPECT_TRUE(torch::equal(sum, expected));
}

inline void check_conformance(ProcessGroup& group) {
  for (const auto type : {torch::kFloat32, torch::kFloat64, torch::kBFloat16, torch::kInt64}) {
    check_all_reduce(group, type);
    check_gathers(group, type);
    check_broadcast_and_all_to_all(group, type);
    check_messages(group, type);
  }
  check_outstanding(group);
  check_order(group);
  for (int i = 0; i < 200; ++i) {
    group.barrier().wait();
    EXPECT_EQ(all_reduce_number(group, 1), group.size());
  }
  EXPECT_EQ(broadcast_text(group, group.rank() == 0 ? "hello" : "", 0), "hello");
}

}  // namespace gantry::testing
