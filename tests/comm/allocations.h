// Counts the calls of operator new on a thread, and checks that collectives in the steady state make none.
// This header defines the operators, so only one source of a program may include it.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <gtest/gtest.h>
#include <limits>
#include <new>

#include "ranks.h"

namespace gantry::testing {
inline thread_local bool counting = false;
inline thread_local long allocations = 0;

inline void* counted(std::size_t bytes, std::size_t alignment = alignof(std::max_align_t)) {
  if (counting) ++allocations;
  void* memory = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment + alignment);
  if (!memory) throw std::bad_alloc();
  return memory;
}
}  // namespace gantry::testing

void* operator new(std::size_t bytes) { return gantry::testing::counted(bytes); }
void* operator new[](std::size_t bytes) { return gantry::testing::counted(bytes); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return gantry::testing::counted(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace gantry::testing {

// Returns the number of calls of operator new that `body` makes on this thread.
template <class Body>
long allocations_of(const Body& body) {
  allocations = 0;
  counting = true;
  body();
  counting = false;
  return allocations;
}

// Returns the minimum of `body` over several rounds. On a busy machine, a round may have a long wait in which
// a rank allocates to find the reason. The steady state shows in the other rounds.
template <class Body>
long least_allocations_of(const Body& body) {
  constexpr int kRounds = 10;
  long least = std::numeric_limits<long>::max();
  for (int round = 0; round < kRounds; ++round) least = std::min(least, body());
  return least;
}

// Runs each collective many times, with small tensors and tensors of many pieces, and with several operations
// in flight at once.
inline void collectives_allocate_nothing(ProcessGroup& group) {
  const int ranks = group.size();
  const std::int64_t part = 20'000;
  torch::Tensor small = torch::ones({16}), large = torch::ones({300'000}), half = torch::ones({5000}, torch::kBFloat16);
  torch::Tensor notified = torch::ones({300'000}), given = torch::ones({part * ranks}), mine = torch::ones({part});
  torch::Tensor gathered = torch::zeros({part * ranks}), summed = torch::zeros({part});
  torch::Tensor taken = torch::zeros({part * ranks});
  const Sizes sizes(ranks, part);
  const auto all_kinds = [&] {
    Work works[] = {group.all_reduce(small),
                    group.all_reduce(large, ReduceOp::kMax),
                    group.all_reduce(half),
                    group.all_gather(gathered, mine, sizes),
                    group.reduce_scatter(summed, given, sizes),
                    group.broadcast(notified, 0),
                    group.all_to_all(taken, given, sizes, sizes),
                    group.barrier()};
    for (Work& work : works) work.wait();
  };
  for (int i = 0; i < 100; ++i) all_kinds();
  const long least = least_allocations_of([&] {
    return allocations_of([&] {
      for (int i = 0; i < 10; ++i) all_kinds();
    });
  });
  EXPECT_EQ(least, 0) << "on rank " << group.rank();
  const long counted_once = allocations_of([] {
    int* volatile one = new int(1);  // volatile: otherwise the compiler removes it
    delete one;
  });
  EXPECT_EQ(counted_once, 1) << "the count counts";
}

// Messages between ranks allocate only the LibTorch objects of the tensors that are sent or received.
inline void messages_allocate_their_tensors_alone(ProcessGroup& group) {
  const int next = (group.rank() + 1) % group.size(), previous = (group.rank() + group.size() - 1) % group.size();
  const torch::Tensor sent = torch::ones({16});
  const TensorSpec spec{{16}, torch::kFloat32};
  constexpr int kMessages = 20;
  const auto all = [&] {
    long taken = 0;
    for (int i = 0; i < kMessages; ++i) {
      const Tag tag{.microbatch = i % 4};
      taken += allocations_of([&] { i % 2 ? group.send(sent, next, tag) : group.hand_over(sent, next, tag); });
      taken += allocations_of([&] { group.recv(spec, previous, tag).result(); });
      group.barrier().wait();
    }
    return taken;
  };
  for (int i = 0; i < 5; ++i) all();
  const long least = least_allocations_of(all);
  const long tensor = allocations_of([] { torch::empty({16}); });
  EXPECT_GT(tensor, 0);
  EXPECT_LE(least, kMessages * tensor) << "on rank " << group.rank();
}

}  // namespace gantry::testing
