// Milliseconds that a schedule takes before a run: generating, validating, lowering, and simulating it.
//   schedule_bench NAME RANKS MICROBATCHES CHUNKS ROUNDS
// prints one line of JSON with the median of the rounds.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fmt/format.h>
#include <functional>
#include <string>
#include <vector>

#include "gantry/schedule/simulate.h"
#include "gantry/schedule/validate.h"

namespace {

double median_milliseconds(int rounds, const std::function<void()>& work) {
  std::vector<double> times;
  for (int round = 0; round < rounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    work();
    times.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
  std::ranges::nth_element(times, times.begin() + rounds / 2);
  return times[rounds / 2];
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    fmt::print(stderr, "error: schedule_bench: {} arguments; expected NAME RANKS MICROBATCHES CHUNKS ROUNDS\n",
               argc - 1);
    return 2;
  }
  using namespace gantry::schedule;
  const std::string name = argv[1];
  const int ranks = std::atoi(argv[2]), microbatches = std::atoi(argv[3]), chunks = std::atoi(argv[4]);
  const int rounds = std::max(1, std::atoi(argv[5]));
  Schedule made, lowered;
  const double generating =
      median_milliseconds(std::min(rounds, 3), [&] { made = generate(name, ranks, microbatches, chunks); });
  const double validating = median_milliseconds(rounds, [&] { validate(made); });
  const double lowering = median_milliseconds(rounds, [&] { lowered = lower(made); });
  const double validating_lowered = median_milliseconds(rounds, [&] { validate(lowered); });
  const double simulating = median_milliseconds(rounds, [&] { simulate(made); });
  std::size_t actions = 0;
  for (const auto& row : lowered.actions) actions += row.size();
  fmt::print(R"({{"schedule": "{}", "ranks": {}, "microbatches": {}, "chunks": {}, "lowered_actions": {}, )"
             R"("generate_ms": {:.3f}, "validate_ms": {:.3f}, "lower_ms": {:.3f}, "validate_lowered_ms": {:.3f}, )"
             R"("simulate_ms": {:.3f}}})"
             "\n",
             name, ranks, microbatches, chunks, actions, generating, validating, lowering, validating_lowered,
             simulating);
}
