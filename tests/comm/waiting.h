// Measures the CPU time that waiting for a late rank takes.
#pragma once

#include <chrono>
#include <ctime>
#include <gtest/gtest.h>
#include <thread>

#include "ranks.h"

namespace gantry::testing {

inline double process_cpu_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Delay of the late rank, long enough to measure the CPU time of the waiting ranks.
constexpr auto kLateToBoth = std::chrono::seconds(1);

// Rank 0 is late for a collective, then for a message. A process that waits meanwhile must use less than
// `share` of one core.
inline void waiting_leaves_the_cores_alone(ProcessGroup& group, double share) {
  using Clock = std::chrono::steady_clock;
  torch::Tensor tensor = torch::ones({100'000});
  for (const bool message : {false, true}) {
    group.barrier().wait();
    const double cpu = process_cpu_seconds();
    const auto begin = Clock::now();
    if (group.rank() == 0) std::this_thread::sleep_for(kLateToBoth);
    if (!message) group.all_reduce(tensor).wait();
    if (message && group.rank() != 0) group.recv({{100'000}}, 0, {}).wait();
    for (int peer = 1; message && group.rank() == 0 && peer < group.size(); ++peer) group.send(tensor, peer, {}).wait();
    if (group.rank() == 0) continue;
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    EXPECT_LT((process_cpu_seconds() - cpu) / seconds, share) << (message ? "a message" : "a collective");
  }
  group.barrier().wait();
}

}  // namespace gantry::testing
