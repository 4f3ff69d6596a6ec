// The conformance suite of the communication backends. Expected values are closed-form functions of rank and
// size. The test of each backend includes this file.
#pragma once

#include <algorithm>
#include <gtest/gtest.h>
#include <numeric>

#include "gantry/core/error.h"
#include "ranks.h"

namespace gantry::testing {

// The device of the suite's tensors: the CPU, unless a test sets another one.
inline torch::Device& conformance_device() {
  thread_local torch::Device device = torch::kCPU;  // thread_local, because ranks may be threads
  return device;
}
inline torch::TensorOptions conformance_options(torch::ScalarType type) {
  return torch::dtype(type).device(conformance_device());
}
inline TensorSpec make_spec(std::vector<std::int64_t> shape, torch::ScalarType type = torch::kFloat32) {
  return {std::move(shape), type, conformance_device()};
}
inline torch::Tensor make_empty(torch::IntArrayRef shape, torch::ScalarType type = torch::kFloat32) {
  return torch::empty(shape, conformance_options(type));
}
inline torch::Tensor make_full(torch::IntArrayRef shape, torch::Scalar value,
                               torch::ScalarType type = torch::kFloat32) {
  return torch::full(shape, value, conformance_options(type));
}
inline torch::Tensor make_zeros(torch::IntArrayRef shape, torch::ScalarType type = torch::kFloat32) {
  return make_full(shape, 0, type);
}
inline torch::Tensor make_ones(torch::IntArrayRef shape, torch::ScalarType type = torch::kFloat32) {
  return make_full(shape, 1, type);
}
inline torch::Tensor make_arange(std::int64_t end, torch::ScalarType type) {
  // Computed on the host, because late kernels of the fake device cannot resize a tensor.
  return torch::arange(end, torch::dtype(type)).to(conformance_device());
}

// Makes a group of the first `size` ranks of the job, and calls `body` with it on its members.
inline void on_first_ranks(World& world, ProcessGroupMesh& mesh, int size,
                           const std::function<void(ProcessGroup&)>& body) {
  std::vector<int> ranks(size);
  std::iota(ranks.begin(), ranks.end(), 0);
  auto groups = mesh.make_groups("first " + std::to_string(size), {ranks});
  if (world.rank() < size) body(*groups.front());
  mesh.world_group().barrier().wait();
}

// Returns the values of a rank: element i of rank r is a small integer, exact in every dtype.
inline torch::Tensor values(int rank, std::vector<std::int64_t> shape, torch::ScalarType type) {
  std::int64_t elements = 1;
  for (const auto size : shape) elements *= size;
  return ((make_arange(elements, torch::kInt64) + rank) % 8).to(type).view(shape);
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
  torch::Tensor most = make_full({5}, group.rank(), type), least = most.clone();
  group.all_reduce(most, ReduceOp::kMax).wait();
  group.all_reduce(least, ReduceOp::kMin).wait();
  EXPECT_TRUE(torch::equal(most, make_full({5}, group.size() - 1, type)));
  EXPECT_TRUE(torch::equal(least, make_zeros({5}, type)));
}

inline void check_gathers(ProcessGroup& group, torch::ScalarType type) {
  for (const Sizes& sizes : {Sizes(group.size(), 3), uneven_sizes(group.size()), Sizes(group.size(), 0)}) {
    const std::int64_t total = rows_before(sizes, group.size());
    const torch::Tensor full = values(0, {total, 5}, type);
    torch::Tensor out = make_empty({total, 5}, type);
    group.all_gather(out, full.narrow(0, rows_before(sizes, group.rank()), sizes[group.rank()]), sizes).wait();
    EXPECT_TRUE(torch::equal(out, full));

    torch::Tensor part = make_empty({sizes[group.rank()], 5}, type);
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
    in.push_back(make_full({rank + peer, 2}, 10 * rank + peer, type));
    expected.push_back(make_full({peer + rank, 2}, 10 * peer + rank, type));
  }
  torch::Tensor out = make_empty({rows_before(received, size), 2}, type);
  group.all_to_all(out, torch::cat(in), received, sent).wait();
  EXPECT_TRUE(torch::equal(out, torch::cat(expected)));
}

inline void check_messages(ProcessGroup& group, torch::ScalarType type) {
  const int next = (group.rank() + 1) % group.size(), previous = (group.rank() + group.size() - 1) % group.size();
  const auto tag = [](int entry) { return Tag{Tag::Kind::kUser, 1, 2, entry}; };
  std::vector<Work> sends;
  sends.push_back(group.send(values(group.rank(), {3, 4}, type), next, tag(0)));
  sends.push_back(group.send(torch::Tensor(), next, tag(1)));           // absent
  sends.push_back(group.send(make_empty({0, 4}, type), next, tag(2)));  // empty
  sends.push_back(group.send(values(group.rank(), {4, 3}, type).t(), next, tag(3)));
  // Received in another order than sent: messages are matched by tag.
  EXPECT_TRUE(
      torch::equal(group.recv(make_spec({3, 4}, type), previous, tag(3)).result(), values(previous, {4, 3}, type).t()));
  EXPECT_FALSE(group.recv(make_spec({3, 4}, type), previous, tag(1)).result().defined());
  EXPECT_EQ(group.recv(make_spec({0, 4}, type), previous, tag(2)).result().numel(), 0);
  EXPECT_TRUE(
      torch::equal(group.recv(make_spec({3, 4}, type), previous, tag(0)).result(), values(previous, {3, 4}, type)));
  for (auto& work : sends) work.wait();
}

inline void check_outstanding(ProcessGroup& group) {
  std::vector<torch::Tensor> tensors;
  std::vector<Work> works;
  for (int i = 0; i < 20; ++i) {
    tensors.push_back(make_full({1 + 1000 * i}, group.rank() + i, torch::kFloat64));
    works.push_back(group.all_reduce(tensors.back()));
  }
  for (int i = 19; i >= 0; --i) {
    works[i].wait();
    const double expected = group.size() * (group.size() - 1) / 2.0 + group.size() * i;
    EXPECT_TRUE(torch::equal(tensors[i], make_full({1 + 1000 * i}, expected, torch::kFloat64)));
  }
}

// More outstanding operations than a table of fixed size would hold, waited for in reverse order.
inline void check_many_outstanding(ProcessGroup& group) {
  const int size = group.size(), rank = group.rank();
  std::vector<torch::Tensor> tensors;
  std::vector<Work> works;
  for (int i = 0; i < 200; ++i) {
    tensors.push_back(make_full({1 + i % 7}, rank + i, torch::kInt64));
    works.push_back(i % 5 == 4 ? group.broadcast(tensors.back(), i % size) : group.all_reduce(tensors.back()));
  }
  for (int i = 199; i >= 0; --i) {
    works[i].wait();
    const int expected = i % 5 == 4 ? i % size + i : size * (size - 1) / 2 + size * i;
    EXPECT_TRUE((tensors[i] == expected).all().item<bool>()) << i << " " << tensors[i];
  }
}

// Destroying the last copy of a Work completes its operation.
inline void check_dropped(ProcessGroup& group) {
  const int size = group.size(), rank = group.rank();
  const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
  for (int i = 0; i < 100; ++i) {
    torch::Tensor sum = values(rank, {6, 4}, torch::kFloat32).t();  // not contiguous: the result is copied
    group.all_reduce(sum);
    EXPECT_TRUE(torch::equal(sum, summed(size, {6, 4}, torch::kFloat32).t())) << i;
    torch::Tensor rows = make_zeros({3, size}).t();
    group.all_gather(rows, make_full({1, 3}, rank, torch::kFloat32), Sizes(size, 1));
    EXPECT_TRUE(torch::equal(rows.select(1, 2), make_arange(size, torch::kFloat32))) << i;
  }
  torch::Tensor sum = make_ones({5});
  Work kept;
  {
    const Work first = group.all_reduce(sum);
    kept = first;
  }
  kept.wait();
  EXPECT_TRUE(torch::equal(sum, make_full({5}, 1.0f * size)));
  // A receive whose Work is destroyed has consumed its message.
  const Tag tag{Tag::Kind::kUser, 5, 0, 0};
  for (const float value : {1.0f, 2.0f}) group.hand_over(make_full({2}, value), next, tag);
  group.recv(make_spec({2}), previous, tag);
  EXPECT_TRUE(torch::equal(group.recv(make_spec({2}), previous, tag).result(), make_full({2}, 2.0f)));
  group.barrier();
}

// After the wait for a send, its buffer may be overwritten, even if the receiver has not received yet.
// `until_received`: the wait may last until the message has been received, as on devices.
inline void check_sent_buffers(ProcessGroup& group, bool until_received) {
  const int next = (group.rank() + 1) % group.size(), previous = (group.rank() + group.size() - 1) % group.size();
  for (const std::int64_t elements : {5, 3000, 1 << 20}) {
    for (const bool transposed : {false, true}) {
      const Tag tag{Tag::Kind::kUser, 6, static_cast<int>(elements % 100), transposed ? 1 : 0};
      const auto send = [&] {
        torch::Tensor mine = values(group.rank(), {elements, 2}, torch::kFloat32);
        const torch::Tensor sent = transposed ? mine.t() : mine;
        group.send(sent, next, tag).wait();
        mine.fill_(-1);
      };
      const auto receive = [&] {
        const torch::Tensor theirs = values(previous, {elements, 2}, torch::kFloat32);
        const torch::Tensor expected = transposed ? theirs.t() : theirs;
        EXPECT_TRUE(torch::equal(group.recv(make_spec(expected.sizes().vec()), previous, tag).result(), expected))
            << elements;
      };
      if (until_received && group.rank() % 2 == 1) {
        receive();
        send();
      } else {
        send();
        if (!until_received) group.barrier().wait();  // all buffers are overwritten before any receive
        receive();
      }
    }
  }
}

// A tensor that is passed to hand_over() arrives unchanged, even if the sender releases it at once.
inline void check_handed_over(ProcessGroup& group) {
  const int next = (group.rank() + 1) % group.size(), previous = (group.rank() + group.size() - 1) % group.size();
  const auto tag = [](int entry) { return Tag{Tag::Kind::kUser, 7, 0, entry}; };
  const std::vector<std::int64_t> sizes{0, 5, 3000, 1 << 20};
  for (int i = 0; i < 4; ++i) group.hand_over(values(group.rank(), {sizes[i], 2}, torch::kInt64), next, tag(i));
  group.hand_over(values(group.rank(), {4, 3}, torch::kInt64).t(), next, tag(4));
  group.hand_over(torch::Tensor(), next, tag(5));
  EXPECT_FALSE(group.recv(make_spec({1}), previous, tag(5)).result().defined());
  EXPECT_TRUE(torch::equal(group.recv(make_spec({3, 4}, torch::kInt64), previous, tag(4)).result(),
                           values(previous, {4, 3}, torch::kInt64).t()));
  for (int i = 0; i < 4; ++i)
    EXPECT_TRUE(torch::equal(group.recv(make_spec({sizes[i], 2}, torch::kInt64), previous, tag(i)).result(),
                             values(previous, {sizes[i], 2}, torch::kInt64)))
        << i;
}

// Reductions add in rank order: ((x0 + x1) + x2) + ..., with a rounding to the tensor's dtype after each
// addition, or in float32 with one rounding at the end.
inline void check_order(ProcessGroup& group) {
  const auto of = [](int rank) {
    return make_full({50000}, rank % 2 ? 1e8f : -1e8f) + 0.3f * static_cast<float>(rank + 1);
  };
  torch::Tensor expected = of(0);
  for (int rank = 1; rank < group.size(); ++rank) expected = expected + of(rank);
  torch::Tensor sum = of(group.rank());
  group.all_reduce(sum).wait();
  EXPECT_TRUE(torch::equal(sum, expected));
}

// Half precisions are reduced in float32 and rounded once: 256 + 1 + 1 is 258, although 256 + 1 is 256 in
// bfloat16.
inline void check_half_sums(ProcessGroup& group) {
  for (const auto& [type, large] : {std::pair{torch::kBFloat16, 256}, std::pair{torch::kFloat16, 2048}}) {
    const torch::Tensor expected = make_full({1001}, large + group.size() - 1).to(type);
    torch::Tensor sum = make_full({1001}, group.rank() == 0 ? large : 1).to(type);
    Sizes sizes(group.size(), 0);
    sizes.back() = 1001;
    torch::Tensor part = make_empty({sizes[group.rank()]}, type);
    group.reduce_scatter(part, sum, sizes).wait();
    group.all_reduce(sum).wait();
    EXPECT_TRUE(torch::equal(sum, expected)) << type << " " << sum[0];
    EXPECT_TRUE(torch::equal(part, expected.narrow(0, 0, part.size(0)))) << type;
  }
}

// A call with inconsistent arguments throws on the calling rank, before any rank waits. The group remains
// usable.
inline void check_refusals(ProcessGroup& group) {
  const int size = group.size(), rank = group.rank();
  const auto rows = [](std::int64_t count, std::int64_t width = 3, torch::ScalarType type = torch::kFloat32) {
    return make_zeros({count, width}, type);
  };
  const Sizes twos(size, 2), too_many(size + 1, 2), ones(size, 1);
  Sizes negative = twos;  // the sum, 2 * size - 4, still matches the tensors with `fewer` rows
  negative[(rank + 1) % size] -= 4;
  const std::int64_t fewer = std::max(0, 2 * size - 4);
  torch::Tensor flags = make_ones({3}, torch::kBool), full = rows(2 * size), part = rows(2);
  EXPECT_THROW(group.all_reduce(flags), UsageError);
  EXPECT_THROW(group.broadcast(part, size), UsageError);

  struct Gather {
    const char* name;
    torch::Tensor full, part;
    Sizes sizes;
  };
  for (auto& [name, all, own, sizes] : {Gather{"a size too many", full, part, too_many},
                                        {"a size too few", full, part, Sizes(size - 1, 2)},
                                        {"sizes of fewer rows", full, rows(1), ones},
                                        {"sizes of more rows", rows(2 * size - 1), part, twos},
                                        {"negative sizes", rows(fewer), part, negative},
                                        {"a part of more rows", full, rows(3), twos},
                                        {"a wider part", full, rows(2, 5), twos},
                                        {"a narrower part", full, rows(2, 2), twos},
                                        {"another dtype", full, rows(2, 3, torch::kFloat64), twos},
                                        {"another dimension", full, make_zeros({2, 3, 1}), twos},
                                        {"numbers", make_zeros({}), make_zeros({}), twos}}) {
    torch::Tensor out = all, in = own;
    EXPECT_THROW(group.all_gather(out, in, sizes), UsageError) << "all_gather of " << name;
    EXPECT_THROW(group.reduce_scatter(in, out, sizes), UsageError) << "reduce_scatter of " << name;
  }

  struct Exchange {
    const char* name;
    torch::Tensor out, in;
    Sizes out_sizes, in_sizes;
  };
  for (auto& [name, out, in, out_sizes, in_sizes] :
       {Exchange{"a size too many", full, full, twos, too_many},
        {"an out size too many", full, full, too_many, twos},
        {"no sizes", full, full, twos, {}},
        {"fewer rows than sent", full, rows(2 * size - 1), twos, twos},
        {"fewer rows than taken", rows(2 * size - 1), full, twos, twos},
        {"negative sizes", rows(fewer), rows(fewer), negative, negative},
        {"wider rows", rows(2 * size, 5), full, twos, twos},
        {"another dtype", rows(2 * size, 3, torch::kInt64), full, twos, twos},
        {"another dimension", make_zeros({2 * size, 3, 1}), full, twos, twos}}) {
    torch::Tensor to = out;
    EXPECT_THROW(group.all_to_all(to, in, out_sizes, in_sizes), UsageError) << "all_to_all of " << name;
  }
  EXPECT_EQ(all_reduce_number(group, 1), size);
}

// Calls that are valid by themselves, but do not match the calls of the other members. No rank may access
// memory outside its own tensors.
enum class Disagreement { kWidths, kDtypes, kSizes };

// The call of one rank does not match the calls of the others. A rank whose own collective succeeds gets the
// failure at the barrier.
inline void disagree(ProcessGroup& group, OperationKind kind, Disagreement about, int odd_rank) {
  const int size = group.size(), rank = group.rank();
  const bool odd = rank == odd_rank;
  const std::int64_t width = odd && about == Disagreement::kWidths ? 5000 : 3;
  const auto type = odd && about == Disagreement::kDtypes ? torch::kFloat64 : torch::kFloat32;
  const auto rows = [&](const Sizes& sizes) { return make_ones({rows_before(sizes, size), width}, type); };
  const Sizes plain(size, 2);
  Sizes sizes = plain;
  if (odd && about == Disagreement::kSizes) {
    sizes[rank] += 1000;
    if (kind != OperationKind::kAllToAll) sizes[(rank + 1) % size] -= 1;
  }
  torch::Tensor full = rows(sizes), part = make_ones({sizes[rank], width}, type), out = rows(plain);
  if (kind == OperationKind::kAllGather) group.all_gather(full, part, sizes).wait();
  if (kind == OperationKind::kReduceScatter) group.reduce_scatter(part, full, sizes).wait();
  if (kind == OperationKind::kAllToAll) {
    std::rotate(sizes.begin(), sizes.end() - 1, sizes.end());  // sends the next rank too many rows
    group.all_to_all(out, full, plain, sizes).wait();
  }
  group.barrier().wait();
}

// Calls `check` for each collective and each kind of disagreement, with the first and the last rank as the
// odd one.
inline void for_each_disagreement(int size, const std::function<void(OperationKind, Disagreement, int)>& check) {
  for (const auto kind : {OperationKind::kAllGather, OperationKind::kReduceScatter, OperationKind::kAllToAll})
    for (const auto about : {Disagreement::kWidths, Disagreement::kDtypes, Disagreement::kSizes})
      for (const int odd : {0, size - 1}) check(kind, about, odd);
}

// All operations that transfer tensors, with tensors of `type`.
inline void check_type(ProcessGroup& group, torch::ScalarType type) {
  check_all_reduce(group, type);
  check_gathers(group, type);
  check_broadcast_and_all_to_all(group, type);
  check_messages(group, type);
}

// `sends_until_received`: the wait for a send lasts until the receiver has received.
inline void check_conformance(ProcessGroup& group, bool sends_until_received = false) {
  for (const auto type :
       {torch::kFloat32, torch::kFloat64, torch::kBFloat16, torch::kFloat16, torch::kInt64, torch::kInt32})
    check_type(group, type);
  check_outstanding(group);
  check_many_outstanding(group);
  check_dropped(group);
  check_sent_buffers(group, sends_until_received);
  check_handed_over(group);
  check_order(group);
  check_half_sums(group);
  check_refusals(group);
  for (int i = 0; i < 200; ++i) {
    group.barrier().wait();
    EXPECT_EQ(all_reduce_number(group, 1), group.size());
  }
  EXPECT_EQ(broadcast_text(group, group.rank() == 0 ? "hello" : "", 0), "hello");
}

}  // namespace gantry::testing
