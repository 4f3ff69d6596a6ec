// Warnings about long waits before the deadline.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <gtest/gtest.h>
#include <thread>

#include "gantry/comm/wait_limits.h"
#include "gantry/launch/launch.h"
#include "gantry/tensors/libtorch.h"
#include "ranks.h"

namespace gantry::testing {
namespace {

using namespace std::chrono_literals;

// Returns the text on stderr of four threads, of which rank 2 is late by `late`.
std::string said_with_a_late_rank(double lost_after_seconds, std::chrono::milliseconds late) {
  Config config = layout_config({.tensor = 4});
  config.comm.timeout_seconds = 30;
  config.comm.lost_after_seconds = lost_after_seconds;
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(launch(config,
                   [&](World& world) {
                     const ProcessGroupMesh mesh(world);
                     if (world.rank() == 2) std::this_thread::sleep_for(late);
                     torch::Tensor sum = torch::ones({3});
                     mesh.group("tp").all_reduce(sum).wait();
                     EXPECT_EQ(sum[0].item<float>(), 4);
                   }),
            0);
  return ::testing::internal::GetCapturedStderr();
}

TEST(SlowWaits, NameTheLateRankAndTheJobGoesOn) {
  const std::string said = said_with_a_late_rank(0.3, 1500ms);
  EXPECT_NE(said.find("warning: rank 0 (pp 0, dp 0, tp 0) has waited 0."), std::string::npos) << said;
  EXPECT_NE(said.find("which rank 2 (pp 0, dp 0, tp 2) has not joined; the job ends when the wait reaches 30 s "
                      "(comm.timeout_seconds)"),
            std::string::npos)
      << said;
  EXPECT_EQ(said.find("warning: rank 2 "), std::string::npos) << said;
}

TEST(SlowWaits, ShortOnesAreNotReported) { EXPECT_EQ(said_with_a_late_rank(15, 300ms), ""); }

TEST(SlowWaits, ALogIsNotFilled) {
  SlowWaitNotices notices({.timeout_seconds = 60, .notice_seconds = 15});
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 100; ++i) notices.say("rank 0", 15, "rank 1");
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 8);
  EXPECT_TRUE(said.ends_with("further slow waits will not be reported\n")) << said;
  EXPECT_TRUE(std::isinf(notices.due_seconds()));
}

TEST(SlowWaits, ANearerDeadlineSpeaksAlone) {
  EXPECT_TRUE(std::isinf(SlowWaitNotices({.timeout_seconds = 10, .notice_seconds = 15}).due_seconds()));
}

}  // namespace
}  // namespace gantry::testing
