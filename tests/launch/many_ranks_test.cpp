// Many ranks on one host: torch-free programs that meet by the control plane of their launch. One is killed, one is
// suspended, one floods its output. The descriptor limit of the launch's parent is too small for them.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <string>

#include "gantry/comm/control/control_plane.h"
#include "gantry/core/error.h"
#include "gantry/launch/job_start.h"
#include "program.h"

namespace gantry::testing {
namespace {

constexpr int kSoftFileLimit = 256;
constexpr int kChosenRank = 17, kFloodLines = 200'000;
constexpr const char* kAct = "GANTRY_TEST_ACT";
constexpr const char* kFloodText =
    "a line of a rank that floods its output, of about a hundred bytes with its end ......";

int many() { return is_long_form() ? 1000 : 150; }

void act(const std::string& what) {
  if (what == "kill") ::raise(SIGKILL);
  if (what == "suspend") ::raise(SIGSTOP);
  if (what == "flood")
    for (int i = 0; i < kFloodLines; ++i) std::puts(kFloodText);
}

// The program of one rank: meets the others, gathers a text of each, acts if it is the chosen rank, and leaves.
TEST(ManyRanks, DISABLED_Rank) {
  const auto number = [](const char* variable) { return std::atoi(std::getenv(variable)); };
  const JobStart start{.rank = number(JobStart::kRankVariable), .ranks = number(JobStart::kRanksVariable)};
  const ControlOptions options{.rank = start.rank,
                               .ranks = start.ranks,
                               .hub = HubPlace::launch,
                               .timeout_seconds = 120,
                               .describe_rank = [](int of) { return fmt::format("rank {}", of); }};
  const ControlEvents events{.on_lost = [](const JobFailure&) {}, .on_abort = [](const JobFailure&) {}};
  int exit_code = 0;
  try {
    const auto plane = ControlPlane::join(options, events, decode_meeting(std::getenv(Rendezvous::kVariable)).value());
    plane->rendezvous();
    const auto texts = plane->gather(std::to_string(start.rank));
    if (static_cast<int>(texts.size()) != start.ranks || texts.back() != std::to_string(start.ranks - 1)) exit_code = 1;
    if (start.rank == kChosenRank) act(std::getenv(kAct));
    plane->leave();
  } catch (const PeerError&) {
    exit_code = PeerError::kExitCode;
  }
  std::fflush(stdout);
  std::_Exit(exit_code);
}

Outcome launch_many(const std::string& what, const std::string& flags) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  return run_program(fmt::format("ulimit -S -n {}; {}={} exec {} launch --backend tcp -n {} {} -- {} --gtest_brief=1 "
                                 "--gtest_also_run_disabled_tests --gtest_filter=ManyRanks.DISABLED_Rank",
                                 kSoftFileLimit, kAct, what, gantry_program(), many(), flags, self),
                     300);
}

TEST(ManyRanks, TheEndOfAKilledRankIsNamed) {
  const Outcome outcome = launch_many("kill", "");
  EXPECT_EQ(outcome.exit_code, PeerError::kExitCode);
  EXPECT_EQ(
      outcome.err,
      "error: launch: rank 17 was killed by SIGKILL; check its log and the memory of its host, then start the job "
      "again\n");
}

TEST(ManyRanks, ASuspendedRankIsNamed) {
  const Outcome outcome = launch_many("suspend", "--stopped-seconds 1");
  EXPECT_EQ(outcome.exit_code, PeerError::kExitCode);
  EXPECT_EQ(outcome.err,
            "error: launch: rank 17 was suspended by SIGSTOP and did not continue; check its log and the memory of its "
            "host, then start the job again\n");
}

TEST(ManyRanks, AFloodOfOneRankIsCompleteAndCostsNoOtherRank) {
  const ScratchFolder scratch;
  const Outcome outcome = launch_many("flood", "--log-dir " + (scratch / "logs"));
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.err, "");
  const std::string line = fmt::format("[{}] {}\n", kChosenRank, kFloodText);
  std::size_t lines = 0;
  for (std::size_t at = 0; (at = outcome.out.find(line, at)) != std::string::npos; at += line.size()) ++lines;
  EXPECT_EQ(lines, static_cast<std::size_t>(kFloodLines));
  for (int rank = 0; rank < many(); ++rank)
    EXPECT_TRUE(std::filesystem::exists(scratch / fmt::format("logs/start-0/rank-{}.log", rank))) << rank;
}

}  // namespace
}  // namespace gantry::testing
