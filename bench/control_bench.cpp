// Measures the cost of heartbeats: the processor time of the control planes of a running job, as a fraction
// of wall time and so of any step. Prints one JSON line per number of ranks. All ranks are planes of this
// process on loopback.
//
// With the argument `rank`, it is a rank of `gantry launch --backend tcp` that meets the others, gathers a
// text of each and leaves (bench/launch.py).
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <thread>
#include <vector>

#include "gantry/comm/control/control_plane.h"
#include "gantry/launch/job_start.h"

namespace {

using namespace gantry;

// Heartbeats are more frequent than in a real run, so that their
// cost is measurable. The result is scaled to the usual interval.
constexpr double kHeartbeat = 0.01, kUsualHeartbeat = 1;
constexpr double kSeconds = 3;

double processor_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

void measure(int ranks) {
  const auto options = [ranks](int rank) {
    return ControlOptions{.rank = rank, .ranks = ranks, .heartbeat_seconds = kHeartbeat, .describe_rank = [](int of) {
                            return "rank " + std::to_string(of);
                          }};
  };
  const ControlEvents events{[](const JobFailure&) {}, [](const JobFailure&) {}};
  std::vector<std::unique_ptr<ControlPlane>> planes;
  planes.push_back(ControlPlane::host(options(0), events, "127.0.0.1"));
  for (int rank = 1; rank < ranks; ++rank)
    planes.push_back(ControlPlane::join(options(rank), events, planes[0]->meeting()));
  for (const auto& plane : planes) plane->rendezvous();
  const double before = processor_seconds();
  std::this_thread::sleep_for(std::chrono::duration<double>(kSeconds));
  const double all_ranks = (processor_seconds() - before) / kSeconds * kHeartbeat / kUsualHeartbeat;
  std::printf(
      "{\"ranks\": %d, \"heartbeat_seconds\": %g, \"processor_microseconds_per_second_and_rank\": %.1f, "
      "\"share_of_a_step\": %.2e}\n",
      ranks, kUsualHeartbeat, 1e6 * all_ranks / ranks, all_ranks / ranks);
  std::fflush(stdout);
}

void be_rank() {
  const auto number = [](const char* variable) { return std::atoi(std::getenv(variable)); };
  const ControlOptions options{.rank = number(JobStart::kRankVariable),
                               .ranks = number(JobStart::kRanksVariable),
                               .hub = HubPlace::launch,
                               .timeout_seconds = 300,
                               .describe_rank = [](int of) { return "rank " + std::to_string(of); }};
  const ControlEvents events{[](const JobFailure&) {}, [](const JobFailure&) {}};
  const auto plane = ControlPlane::join(options, events, decode_meeting(std::getenv(Rendezvous::kVariable)).value());
  plane->rendezvous();
  plane->gather("here");
  plane->leave();
}

}  // namespace

int main(int count, const char** words) {
  if (count > 1 && std::strcmp(words[1], "rank") == 0) return be_rank(), 0;
  for (const int ranks : {2, 4, 8, 64}) measure(ranks);
}
