#include <array>
#include <chrono>
#include <thread>

#include "conformance.h"
#include "gantry/core/host/usable_cores.h"
#include "gantry/launch/launch.h"
#include "gantry/tensors/libtorch.h"
#include "waiting.h"

namespace gantry::testing {
namespace {

TEST(LocalBackend, ConformsAtEverySize) {
  for (const int size : {1, 2, 3, 4, 8})
    run_ranks(size, [&](World&, ProcessGroupMesh& mesh) { check_conformance(mesh.world_group()); });
}

// Runs `body` on `ranks` threads. Returns the exit code and the text on stderr.
std::pair<int, std::string> outcome(int ranks, double timeout, const std::function<void(World&, ProcessGroup&)>& body) {
  Config config = layout_config({.tensor = ranks});
  config.comm.timeout_seconds = timeout;
  config.comm.recorder = 0;
  ::testing::internal::CaptureStderr();
  const int code = launch(config, [&](World& world) {
    ProcessGroupMesh mesh(world);
    body(world, mesh.world_group());
  });
  return {code, ::testing::internal::GetCapturedStderr()};
}

TEST(LocalBackend, ARankThatThrowsEndsTheOthersWithItsCause) {
  const auto [code, printed] = outcome(4, 30, [](World& world, ProcessGroup& group) {
    if (world.rank() == 2) throw InputError("data: broken");
    torch::Tensor tensor = torch::ones({10});
    group.all_reduce(tensor).wait();
  });
  EXPECT_EQ(code, 4);
  EXPECT_EQ(printed, "error: rank 2 (pp 0, dp 0, tp 2): data: broken\n");
}

// Stays in the rank's body, outside of any wait, until the job fails.
void stay_until_failure(ProcessGroup& group) {
  Work never = group.recv({{1}}, group.rank(), {Tag::Kind::kMetadata, 1, 1, 1});
  while (!never.done()) std::this_thread::yield();
}

TEST(LocalBackend, ADeadlineSaysWhoWaitedForWhat) {
  const auto [code, printed] = outcome(2, 0.2, [](World& world, ProcessGroup& group) {
    if (world.rank() == 0) group.recv({{3}}, 1, {Tag::Kind::kForward, 0, 3, 0}).wait();
    stay_until_failure(group);
  });
  EXPECT_EQ(code, 7);
  EXPECT_EQ(printed,
            "error: rank 0 (pp 0, dp 0, tp 0) waited 0.2 s for forward of stage 0, microbatch 3, entry 0 from rank 1 "
            "(pp 0, dp 0, tp 1)\n");
}

TEST(LocalBackend, ADeadlineNamesWhoHasNotJoinedACollective) {
  const auto [code, printed] = outcome(3, 0.2, [](World& world, ProcessGroup& group) {
    torch::Tensor tensor = torch::ones({4});
    if (world.rank() != 1) group.all_reduce(tensor).wait();
    stay_until_failure(group);
  });
  EXPECT_EQ(code, 7);
  EXPECT_NE(printed.find("all_reduce of float32 [4]"), std::string::npos) << printed;
  EXPECT_NE(printed.find("which rank 1 (pp 0, dp 0, tp 1) has not joined"), std::string::npos) << printed;
}

// The deadline of an hour is much longer than the time limit of this test.
TEST(LocalBackend, AWaitForARankThatHasEndedEndsAtOnce) {
  const std::string after =
      ", but rank 1 (pp 0, dp 0, tp 1) has ended its work; expected all ranks to make the same calls; "
      "find out why its body returned before the others'\n";
  const auto collective = outcome(3, 3600, [](World& world, ProcessGroup& group) {
    torch::Tensor tensor = torch::ones({4});
    group.all_reduce(tensor).wait();
    if (world.rank() != 1) group.all_reduce(tensor).wait();
  });
  EXPECT_EQ(collective.first, 7);
  EXPECT_NE(collective.second.find(" waits for all_reduce of float32 [4], number 1 of group "), std::string::npos)
      << collective.second;
  EXPECT_NE(collective.second.find(" has not joined" + after), std::string::npos) << collective.second;
  const auto message = outcome(2, 3600, [](World& world, ProcessGroup& group) {
    if (world.rank() == 1) group.send(torch::ones({3}), 0, {});  // arrives although the sender ends
    if (world.rank() == 0) EXPECT_EQ(group.recv({{3}}, 1, {}).result()[0].item<float>(), 1);
    if (world.rank() == 0) group.recv({{3}}, 1, {}).wait();
  });
  EXPECT_EQ(message.second,
            "error: rank 0 (pp 0, dp 0, tp 0) waits for message of stage 0, microbatch 0, entry 0 from "
            "rank 1 (pp 0, dp 0, tp 1)" +
                after);
}

TEST(LocalBackend, WhatIsHandedOverIsNotCopied) {
  std::array<const void*, 2> sent{}, received{};
  run_ranks(2, [&](World&, ProcessGroupMesh& mesh) {
    ProcessGroup& group = mesh.world_group();
    const torch::Tensor given = torch::ones({1000});
    sent[group.rank()] = given.data_ptr();
    group.hand_over(given, 1 - group.rank(), {});
    received[group.rank()] = group.recv({{1000}}, 1 - group.rank(), {}).result().data_ptr();
    group.barrier().wait();
  });
  EXPECT_EQ(received[0], sent[1]);
  EXPECT_EQ(received[1], sent[0]);
}

// A Work that is destroyed by stack unwinding does not wait. The other ranks get the cause long before the
// deadline.
TEST(LocalBackend, AWorkThatAnExceptionDropsDoesNotKeepItsRank) {
  const auto [code, printed] = outcome(2, 3600, [](World& world, ProcessGroup& group) {
    torch::Tensor tensor = torch::ones({4});
    const Work work = group.all_reduce(tensor);
    if (world.rank() == 0) throw InputError("data: broken");
    group.recv({{1}}, 0, {}).wait();
  });
  EXPECT_EQ(code, 4);
  EXPECT_EQ(printed, "error: rank 0 (pp 0, dp 0, tp 0): data: broken\n");
}

TEST(LocalBackend, DifferentCallsAreRefusedByName) {
  const auto [code, printed] = outcome(2, 30, [](World& world, ProcessGroup& group) {
    torch::Tensor tensor = torch::ones({world.rank() == 0 ? 4 : 5});
    group.all_reduce(tensor).wait();
  });
  EXPECT_EQ(code, 7);
  EXPECT_NE(printed.find("called all_reduce of float32 [4] while"), std::string::npos) << printed;
}

TEST(LocalBackend, CallsThatFitOnlyInThemselvesAreRefusedByName) {
  for_each_disagreement(3, [](OperationKind kind, Disagreement about, int odd) {
    const auto [code, printed] =
        outcome(3, 30, [&](World&, ProcessGroup& group) { disagree(group, kind, about, odd); });
    EXPECT_EQ(code, 7);
    // The error names the ranks whose calls differ, and the difference.
    const auto expect_said = [&printed = printed](const std::string& text) {
      EXPECT_NE(printed.find(text), std::string::npos) << printed << "says nothing of: " << text;
    };
    expect_said("rank " + std::to_string(odd));
    expect_said(std::string("called ") + name_of(kind) + " of float32 [");
    if (about == Disagreement::kSizes)
      return expect_said(kind == OperationKind::kAllToAll ? " which expects 2" : " with different sizes by rank");
    expect_said(" while rank ");
    expect_said(about == Disagreement::kDtypes ? std::string("called ") + name_of(kind) + " of float64 [" : ", 5000]");
    expect_said(", 3]");
  });
}

TEST(LocalBackend, TensorsOfOtherDevicesAreRefused) {
  run_ranks(2, [](World&, ProcessGroupMesh& mesh) {
    ProcessGroup& group = mesh.world_group();
    torch::Tensor there = torch::empty({4}, torch::kMeta), here = torch::empty({8});
    EXPECT_THROW(group.all_reduce(there), UsageError);
    EXPECT_THROW(group.broadcast(there, 0), UsageError);
    EXPECT_THROW(group.all_gather(here, there, {4, 4}), UsageError);
    EXPECT_THROW(group.reduce_scatter(there, here, {4, 4}), UsageError);
    EXPECT_THROW(group.all_to_all(here, torch::empty({8}, torch::kMeta), {4, 4}, {4, 4}), UsageError);
    EXPECT_THROW(group.send(there, 1 - group.rank(), {}), UsageError);
    EXPECT_THROW(group.recv({{4}, torch::kFloat32, torch::kMeta}, 1 - group.rank(), {}), UsageError);
    EXPECT_EQ(all_reduce_number(group, 1), 2);
  });
}

TEST(LocalBackend, MoreRanksThanCoresWaitWithoutUsingThem) {
  const int ranks = usable_cores() + 2;
  run_ranks(ranks, [](World&, ProcessGroupMesh& mesh) { waiting_leaves_the_cores_alone(mesh.world_group(), 0.3); });
}

TEST(LocalBackend, AMessageOfAnotherShapeIsRefused) {
  const auto [code, printed] = outcome(2, 30, [](World& world, ProcessGroup& group) {
    if (world.rank() == 0) group.send(torch::ones({2, 3}), 1, {});
    if (world.rank() == 1) group.recv({{3, 2}}, 0, {}).wait();
  });
  EXPECT_EQ(code, 7);
  EXPECT_NE(printed.find("float32 [2, 3]"), std::string::npos) << printed;
  EXPECT_NE(printed.find("float32 [3, 2]"), std::string::npos) << printed;
}

// Delay of the slow rank, so that the others arrive first and wait.
constexpr auto kSlow = std::chrono::milliseconds(3);

TEST(LocalBackend, SlowRanksInTurnChangeNothing) {
  run_ranks(3, [&](World& world, ProcessGroupMesh& mesh) {
    for (int slow = 0; slow < 3; ++slow)
      for (int i = 0; i < 5; ++i) {
        if (world.rank() == slow) std::this_thread::sleep_for(kSlow);
        EXPECT_EQ(all_reduce_number(mesh.world_group(), world.rank()), 3);
      }
  });
}

TEST(Launch, ALaunchWithinALaunchIsRefused) {
  const auto [code, printed] = outcome(1, 30, [](World&, ProcessGroup&) { launch(Config(), [](World&) {}); });
  EXPECT_EQ(code, 2) << printed;
}

TEST(Launch, MeshArithmeticIsRefusedBeforeRanksStart) {
  Config config;
  config.parallel.order = {"pp", "tp"};
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(launch(config, [](World&) { FAIL(); }), 3);
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("parallel.order"), std::string::npos);
}

}  // namespace
}  // namespace gantry::testing
