// Jobs of threads that hang in different ways, and the diagnosis of the files that they write.
#include "gantry/diagnosis/flight_recorder.h"

#include <chrono>
#include <csignal>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <thread>
#include <unistd.h>

#include "failure_seen.h"
#include "gantry/core/error.h"
#include "gantry/diagnosis/diagnosis.h"
#include "gantry/launch/launch.h"
#include "gantry/tensors/libtorch.h"
#include "program.h"
#include "ranks.h"

namespace gantry::testing {
namespace {

using recorder::Finding;
using ::testing::HasSubstr;

// Delay before a rank fails or is signalled. The other ranks have then waited longer than the threshold that
// run() passes to diagnose().
constexpr auto kWaitedFor = std::chrono::milliseconds(100);

class FlightRecorder : public ::testing::Test {
 protected:
  using Body = std::function<void(World&, ProcessGroupMesh&)>;

  // Runs `body` on `ranks` threads, and reads the files that they write.
  void run(int ranks, const Body& body, double timeout = 0.3) {
    Config config = layout_config({.tensor = ranks});
    config.comm.timeout_seconds = timeout;
    config.comm.recorder = entries_;
    config.output = scratch_.path();
    ::testing::internal::CaptureStderr();
    exit_code_ = launch(config, [&](World& world) {
      ProcessGroupMesh mesh(world);
      elsewhere_.watch([&] { body(world, mesh); });
    });
    printed_ = ::testing::internal::GetCapturedStderr();
    if (has_files()) job_ = recorder::read_folder(scratch_.path());
    diagnosis_ = recorder::diagnose(job_, 0.05);
  }
  bool has_files() const { return std::filesystem::exists(scratch_ / "recorder"); }

  void expect(Finding finding, const std::string& said) const {
    EXPECT_STREQ(name_of(diagnosis_.finding), name_of(finding)) << diagnosis_.sentence << "\n" << printed_;
    EXPECT_THAT(diagnosis_.sentence, HasSubstr(said));
  }

  const ScratchFolder scratch_;
  FailureSeen elsewhere_;  // watches the bodies in run()
  int entries_ = 1024;
  int exit_code_ = -1;
  std::string printed_;
  recorder::JobRecords job_;
  recorder::Diagnosis diagnosis_;
};

void sum(ProcessGroup& group, std::int64_t elements = 4) {
  torch::Tensor tensor = torch::ones({elements});
  group.all_reduce(tensor).wait();
}

TEST_F(FlightRecorder, ARankThatDoesNotComeToTheOperation) {
  run(3, [this](World& world, ProcessGroupMesh& mesh) {
    sum(mesh["tp"]);
    if (world.rank() == 1) elsewhere_.wait();
    sum(mesh["tp"]);
  });
  EXPECT_EQ(exit_code_, PeerError::kExitCode);
  expect(Finding::kNotReached,
         "for rank 1 (pp 0, dp 0, tp 1) to join all_reduce 1 of group 'tp' (float32 [4]), which is outside "
         "communication; its last call, all_reduce 0 of group 'tp' (float32 [4]), was done");
  EXPECT_TRUE(job_.records.at(0).failure);
  EXPECT_THAT(job_.records.at(0).reason, HasSubstr("waited 0.3 s for all_reduce"));
  EXPECT_THAT(printed_, HasSubstr("\nflight recorder: `gantry doctor " + scratch_.path() + "/recorder` shows who"));
  EXPECT_EQ(std::count(printed_.begin(), printed_.end(), '\n'), 2) << printed_;
}

TEST_F(FlightRecorder, ARankThatHasEnded) {
  run(2, [](World& world, ProcessGroupMesh& mesh) {
    if (world.rank() == 0) sum(mesh["tp"]);
  });
  expect(Finding::kRankEnded,
         " s for rank 1 (pp 0, dp 0, tp 1) to join all_reduce 0 of group 'tp' (float32 [4]), which has ended");
}

TEST_F(FlightRecorder, ARankThatFailed) {
  run(2, [](World& world, ProcessGroupMesh& mesh) {
    if (world.rank() == 1) std::this_thread::sleep_for(kWaitedFor);
    if (world.rank() == 1) throw std::runtime_error("the cause");
    sum(mesh["tp"]);
  });
  EXPECT_EQ(exit_code_, 9);
  expect(Finding::kRankFailed,
         "for rank 1 (pp 0, dp 0, tp 1) to join all_reduce 0 of group 'tp' (float32 [4]), which "
         "failed: the cause");
}

TEST_F(FlightRecorder, ShapesThatDiffer) {
  run(2, [](World& world, ProcessGroupMesh& mesh) { sum(mesh["tp"], world.rank() == 0 ? 4 : 5); });
  // Either call may be named first, because both ranks notice the difference at the same time.
  expect(Finding::kTensorsDiffer, "all_reduce 0 of group 'tp'");
  EXPECT_THAT(diagnosis_.sentence,
              ::testing::ContainsRegex("rank 0 [^)]*\\) called [^)]*as all_reduce of float32 .4. \\(sum\\)"));
  EXPECT_THAT(diagnosis_.sentence,
              ::testing::ContainsRegex("rank 1 [^)]*\\) called [^)]*as all_reduce of float32 .5. \\(sum\\)"));
}

TEST_F(FlightRecorder, CallsInAnotherOrder) {
  run(2, [](World& world, ProcessGroupMesh& mesh) {
    torch::Tensor tensor = torch::ones({4});
    if (world.rank() == 1) mesh["tp"].broadcast(tensor, 0).wait();
    sum(mesh["tp"]);
  });
  expect(Finding::kCallsDiffer, "rank 0 (pp 0, dp 0, tp 0) called all_reduce of float32 [4] (sum)");
  expect(Finding::kCallsDiffer, "rank 1 (pp 0, dp 0, tp 1) called broadcast of float32 [4] from rank 0");
  expect(Finding::kCallsDiffer, "as number 0 of group 'tp'");
}

TEST_F(FlightRecorder, AMessageOfAnotherTag) {
  run(2, [this](World& world, ProcessGroupMesh& mesh) {
    if (world.rank() == 0) mesh["tp"].send(torch::ones({4}), 1, {Tag::Kind::kForward, 0, 2, 0});
    if (world.rank() == 0) elsewhere_.wait();
    if (world.rank() == 1) mesh["tp"].recv({{4}}, 0, {Tag::Kind::kForward, 0, 3, 0}).wait();
  });
  expect(Finding::kNoSend,
         "rank 1 (pp 0, dp 0, tp 1) has waited 0.3 s for rank 0 (pp 0, dp 0, tp 0) to send forward of "
         "stage 0, microbatch 3, entry 0 (float32 [4]) in group 'tp'");
  EXPECT_THAT(diagnosis_.sentence,
              HasSubstr("it sent forward of stage 0, microbatch 2, entry 0 (float32 [4]) instead"));
}

TEST_F(FlightRecorder, AMessageOfAnotherShape) {
  run(2, [](World& world, ProcessGroupMesh& mesh) {
    if (world.rank() == 0) mesh["tp"].send(torch::ones({2, 3}), 1, {});
    if (world.rank() == 1) mesh["tp"].recv({{3, 2}}, 0, {}).wait();
  });
  expect(Finding::kTensorsDiffer, "as float32 [3, 2], which sent float32 [2, 3]");
}

TEST_F(FlightRecorder, RanksThatWaitForEachOther) {
  run(2, [](World& world, ProcessGroupMesh& mesh) {
    if (world.rank() == 0) sum(mesh["tp"]);
    mesh["tp"].recv({{4}}, 1 - world.rank(), {}).wait();
  });
  expect(Finding::kCycle, "2 ranks wait for each other in a cycle: ");
  EXPECT_THAT(diagnosis_.sentence, HasSubstr("for rank 1 (pp 0, dp 0, tp 1) to join all_reduce 0 of group 'tp'"));
  EXPECT_THAT(diagnosis_.sentence, HasSubstr("for rank 0 (pp 0, dp 0, tp 0) to send message of stage 0"));
}

TEST_F(FlightRecorder, ARankThatDoesNotMakeTheGroup) {
  run(3, [this](World& world, ProcessGroupMesh&) {
    if (world.rank() == 1) elsewhere_.wait();
    if (world.rank() == 0) world.backend().make_group("pair", {0, 1})->barrier().wait();
  });
  expect(Finding::kNeverJoined, "to join barrier 0 of group 'pair', which never joined the group");
}

// A rank that posts an operation and then waits for another one is blocked in the second one, not in the
// posted one.
TEST_F(FlightRecorder, WhatIsPostedIsNotWhatIsWaitedFor) {
  run(2, [this](World& world, ProcessGroupMesh& mesh) {
    torch::Tensor tensor = torch::ones({4});
    Work posted = world.rank() == 0 ? mesh["tp"].all_reduce(tensor) : Work();
    if (world.rank() == 0) mesh["tp"].recv({{4}}, 1, {}).wait();
    elsewhere_.wait();
  });
  expect(Finding::kNotReached, "for rank 1 (pp 0, dp 0, tp 1) to send message");
}

TEST_F(FlightRecorder, ForgetsTheOldestAndStaysRight) {
  entries_ = 16;
  run(2, [this](World& world, ProcessGroupMesh& mesh) {
    for (int i = 0; i < 100; ++i) sum(mesh["tp"]);
    for (int i = 0; i < 50; ++i) {
      if (world.rank() == 0) mesh["tp"].send(torch::ones({4}), 1, {});
      if (world.rank() == 1) mesh["tp"].recv({{4}}, 0, {}).wait();
    }
    if (world.rank() == 0) elsewhere_.wait();
    if (world.rank() == 1) mesh["tp"].recv({{4}}, 0, {}).wait();
  });
  EXPECT_EQ(job_.records.at(1).operations.size(), 16u);
  EXPECT_GT(job_.records.at(1).forgotten, 130u);
  expect(Finding::kNotReached,
         "rank 1 (pp 0, dp 0, tp 1) has waited 0.3 s for rank 0 (pp 0, dp 0, tp 0) to send message");
}

TEST_F(FlightRecorder, NoneIsKeptWhereNoneIsWanted) {
  entries_ = 0;
  run(2, [](World& world, ProcessGroupMesh& mesh) {
    if (world.rank() == 0) sum(mesh["tp"]);
  });
  EXPECT_EQ(exit_code_, PeerError::kExitCode);
  EXPECT_FALSE(has_files());
  EXPECT_EQ(printed_.find("flight recorder"), std::string::npos);
}

TEST_F(FlightRecorder, ErrorsThatSayAllLeaveNoFiles) {
  run(2, [](World& world, ProcessGroupMesh& mesh) {
    if (world.rank() == 1) throw ConfigError("model: wrong");
    sum(mesh["tp"]);
  });
  EXPECT_EQ(exit_code_, ConfigError::kExitCode);
  EXPECT_FALSE(has_files());
  EXPECT_EQ(std::count(printed_.begin(), printed_.end(), '\n'), 1) << printed_;
}

TEST_F(FlightRecorder, AJobThatEndsWellLeavesNoFiles) {
  run(2, [](World&, ProcessGroupMesh& mesh) { sum(mesh["tp"]); });
  EXPECT_EQ(exit_code_, 0);
  EXPECT_FALSE(has_files());
}

// The recorder changes neither the backend's name nor the results. The backend rejects the same calls as
// without it.
TEST_F(FlightRecorder, IsNotToBeNoticed) {
  run(2, [](World& world, ProcessGroupMesh& mesh) {
    EXPECT_STREQ(world.backend().name(), "local");
    EXPECT_EQ(current_world(), &world);
    Work work = mesh["tp"].barrier();
    work.wait();
    EXPECT_TRUE(work.done());
    work.wait();
    EXPECT_THROW(mesh["tp"].send(torch::ones({1}), 2, {}), UsageError);
    EXPECT_THROW(mesh["tp"].recv({{1}}, -1, {}), UsageError);
    if (world.rank() == 0) mesh["tp"].send(torch::full({2}, 7), 1, {});
    if (world.rank() == 1) {
      Work receive = mesh["tp"].recv({{2}, torch::kInt64}, 0, {});
      EXPECT_TRUE(torch::equal(receive.result(), torch::full({2}, 7)));
      EXPECT_TRUE(torch::equal(receive.result(), torch::full({2}, 7)));
    }
  });
  EXPECT_EQ(exit_code_, 0) << printed_;
}

// The signal arrives during a wait that lasts until the files exist.
TEST_F(FlightRecorder, ASignalWritesThemWhileTheJobGoesOn) {
  run(
      2,
      [&](World& world, ProcessGroupMesh& mesh) {
        sum(mesh["tp"]);
        if (world.rank() == 1) {
          std::this_thread::sleep_for(kWaitedFor);
          ::kill(::getpid(), SIGUSR2);
          const auto last = scratch_ / "recorder/rank-00001.json";
          for (int i = 0; i < 2000 && !std::filesystem::exists(last); ++i)
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
        sum(mesh["tp"]);
      },
      /*timeout=*/30);
  EXPECT_EQ(exit_code_, 0) << printed_;
  EXPECT_EQ(printed_, "");
  ASSERT_EQ(job_.records.size(), 2u);
  EXPECT_EQ(job_.records.at(0).reason, "SIGUSR2");
  EXPECT_FALSE(job_.records.at(0).failure);
  expect(Finding::kNotReached, "rank 0 (pp 0, dp 0, tp 0) has waited");
  EXPECT_EQ(recorder::diagnose(job_, 60).finding, Finding::kNothing);
}

TEST_F(FlightRecorder, AProgramMayAskForThem) {
  run(2, [](World& world, ProcessGroupMesh& mesh) {
    sum(mesh["tp"]);
    if (world.is_main()) EXPECT_TRUE(recorder::write_flight_records("the program asked"));
  });
  EXPECT_EQ(job_.records.at(0).reason, "the program asked");
  expect(Finding::kNothing, "nothing is stuck");
}

TEST_F(FlightRecorder, AFolderThatCantBeWrittenIsSaid) {
  std::filesystem::create_symlink("/proc/none", scratch_ / "recorder");
  ::testing::internal::CaptureStderr();
  Config config = layout_config({.tensor = 2});
  config.comm.timeout_seconds = 0.2;
  config.output = scratch_.path();
  const int code = launch(config, [](World& world) {
    ProcessGroupMesh mesh(world);
    if (world.rank() == 0) sum(mesh["tp"]);
  });
  const std::string printed = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(code, PeerError::kExitCode);
  EXPECT_THAT(printed, HasSubstr("\nflight recorder: its files cannot be written: "));
}

}  // namespace
}  // namespace gantry::testing
