// The NCCL backend when NCCL, a device or a rank fails, on support/fake_nccl.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include "failure_seen.h"
#include "gantry/comm/nccl/nccl_communicator.h"
#include "gantry/core/base/steady_seconds.h"
#include "gantry/launch/backends.h"
#include "gantry/tensors/libtorch.h"
#include "nccl_ranks.h"

namespace gantry::testing {
namespace {

class NcclFailures : public ::testing::Test {
 protected:
  void SetUp() override { reset_fake_counts(); }
  void TearDown() override {
    set_fake_faults(nullptr);
    set_fake_joining(true);
    EXPECT_EQ(fake_counts().live, 0) << "communicators are left";
    EXPECT_EQ(fake_counts().misuses, 0);
    EXPECT_EQ(live_events(), 0);
  }
};

void keep_reducing(ProcessGroup& group) {
  torch::Tensor tensor = torch::ones({1000}, here());
  for (int i = 0; i < 1000; ++i) group.all_reduce(tensor).wait();
  tensor.sum().item<float>();  // the host waits too, so that no rank ends normally before the failure
}

TEST_F(NcclFailures, AnOperationIsUnderWayUntilItsEventIsRecordedAndHasPassed) {
  const NcclDevice device(pretend_device(0));
  const NcclOperation aborted(device, {}, [] { return "a sum"; });
  EXPECT_FALSE(aborted.finished()) << "what it holds would be freed while the device may still write it";
  NcclOperation issued(device, {}, [] { return "a sum"; });
  issued.issued_on(device.current_stream());
  c10::Event after = device.new_event();
  after.record(device.current_stream());
  after.synchronize();
  EXPECT_TRUE(issued.finished());
}

TEST_F(NcclFailures, AnErrorThatNcclReportsNamesTheRankItsGroupAndTheCause) {
  set_fake_faults([](const FakeCall& call) {
    return call.kind == "ncclAllReduce" && call.rank == 1 && call.number == 3 ? FakeFault::kError : FakeFault::kNone;
  });
  const auto [code, printed] = outcome_on_fake(3, 30, [](World&, ProcessGroup& group) { keep_reducing(group); });
  EXPECT_EQ(code, 7);
  EXPECT_EQ(printed,
            "error: rank 1 (pp 0, dp 0, tp 1): nccl: group 'tp' with rank 0 (pp 0, dp 0, tp 0), rank 2 (pp 0, dp 0, "
            "tp 2) failed: a fake remote error: the cable is cut; set NCCL_DEBUG=INFO to see the details\n");
  EXPECT_GT(fake_counts().aborted, 0);
  EXPECT_EQ(fake_counts().destroyed, 0);
}

TEST_F(NcclFailures, AnOperationThatHangsOnTheDeviceMeetsTheDeadline) {
  set_fake_faults([](const FakeCall& call) {
    return call.kind == "ncclAllReduce" && call.rank == 0 && call.number == 3 ? FakeFault::kHang : FakeFault::kNone;
  });
  const auto [code, printed] = outcome_on_fake(2, 2, [](World&, ProcessGroup& group) { keep_reducing(group); });
  EXPECT_EQ(code, 7);
  EXPECT_NE(printed.find("waited 2 s for all_reduce of float32 [1000], number 3 of group 'tp' with rank "),
            std::string::npos)
      << printed;
  EXPECT_GT(fake_counts().aborted, 0);
}

TEST_F(NcclFailures, AMessageThatHangsOnTheDeviceIsNamed) {
  set_fake_faults([](const FakeCall& call) {
    return call.kind == "ncclRecv" && call.number == 1 ? FakeFault::kHang : FakeFault::kNone;
  });
  // The two ranks also have to meet for their first message within the deadline.
  const auto [code, printed] = outcome_on_fake(2, 5, [](World&, ProcessGroup& group) {
    const Tag tag{Tag::Kind::kForward, 2, 5, 0};
    if (group.rank() == 0) group.send(torch::ones({9}, here()), 1, tag).wait();
    if (group.rank() == 1) group.recv(spec_here({9}), 0, tag).wait();
  });
  EXPECT_EQ(code, 7);
  EXPECT_NE(printed.find("forward of stage 2, microbatch 5, entry 0"), std::string::npos) << printed;
}

TEST_F(NcclFailures, ADeadlineSaysWhoWaitedForWhat) {
  FailureSeen elsewhere;
  const auto [code, printed] = outcome_on_fake(2, 2, [&](World& world, ProcessGroup& group) {
    elsewhere.watch([&] {
      if (world.rank() == 0) group.recv(spec_here({3}), 1, {Tag::Kind::kForward, 0, 3, 0}).wait();
    });
    if (world.rank() == 1) elsewhere.wait();
  });
  EXPECT_EQ(code, 7);
  EXPECT_EQ(printed,
            "error: rank 0 (pp 0, dp 0, tp 0) waited 2 s for forward of stage 0, microbatch 3, entry 0 from rank 1 "
            "(pp 0, dp 0, tp 1)\n");
}

// Delay longer than comm.lost_after_seconds, and much shorter than the deadline.
constexpr auto kLate = std::chrono::milliseconds(2000);

// Once with a message that the host waits for, and once with a reduction on the device.
TEST_F(NcclFailures, ALateRankIsNamedBeforeTheDeadlineAndTheJobGoesOn) {
  Config config = layout_config({.tensor = 2});
  config.comm.timeout_seconds = 30;
  config.comm.lost_after_seconds = 0.8;
  config.comm.recorder = 0;
  for (const bool message : {false, true}) {
    const auto [code, printed] = outcome_on_fake(config, [&](World& world, ProcessGroup& group) {
      if (world.rank() == 1) std::this_thread::sleep_for(kLate);
      torch::Tensor tensor = torch::ones({5}, here());
      if (!message) group.all_reduce(tensor).wait();
      if (message && world.rank() == 0) group.recv(spec_here({5}), 1, {}).wait();
      if (message && world.rank() == 1) group.send(tensor, 0, {}).wait();
    });
    EXPECT_EQ(code, 0);
    EXPECT_NE(printed.find("warning: rank 0 (pp 0, dp 0, tp 0) has waited "), std::string::npos) << printed;
    EXPECT_NE(printed.find(message ? "from rank 1 (pp 0, dp 0, tp 1)" : "for all_reduce of float32 [5]"),
              std::string::npos)
        << printed;
    EXPECT_NE(printed.find("; the job ends when the wait reaches 30 s (comm.timeout_seconds)\n"), std::string::npos)
        << printed;
  }
}

TEST_F(NcclFailures, ARankThatThrowsEndsTheOthersWithItsCause) {
  const auto [code, printed] = outcome_on_fake(4, 30, [](World& world, ProcessGroup& group) {
    if (world.rank() == 2) throw InputError("data: broken");
    keep_reducing(group);
  });
  EXPECT_EQ(code, 4);
  EXPECT_EQ(printed, "error: rank 2 (pp 0, dp 0, tp 2): data: broken\n");
}

// Long before the deadline: in a reduction on the device, in a send on the device, and in a message that the
// host waits for.
TEST_F(NcclFailures, AWaitForARankThatHasEndedEndsSoon) {
  enum class Waits { kInASum, kInASend, kForAMessage };
  for (const auto& [waits, what] :
       {std::pair(Waits::kInASum, "all_reduce of float32 [5], number 0 of group 'tp' with rank 1 (pp 0, dp 0, tp 1)"),
        std::pair(Waits::kInASend, "rank 1 (pp 0, dp 0, tp 1) to take message of stage 0, microbatch 7, entry 0"),
        std::pair(Waits::kForAMessage, "message of stage 0, microbatch 7, entry 0 from rank 1 (pp 0, dp 0, tp 1)")}) {
    Config config = layout_config({.tensor = 2});
    config.comm.timeout_seconds = 3600;
    config.comm.recorder = 0;
    ::testing::internal::CaptureStderr();
    const auto run = [waits](World& world) {
      const auto group = world.backend().make_group("tp", {0, 1});
      if (world.rank() == 1) return;
      const Tag tag{Tag::Kind::kUser, 0, 7, 0};
      torch::Tensor tensor = torch::ones({5}, here());
      if (waits == Waits::kInASum) group->all_reduce(tensor).wait();
      if (waits == Waits::kInASend) group->send(tensor, 1, tag).wait();
      if (waits == Waits::kForAMessage) group->recv(spec_here({5}), 1, tag).wait();
    };
    const int code = launch_on_devices(config, run, {.carries_messages = [](const std::string&) { return true; }});
    EXPECT_EQ(code, 7);
    EXPECT_EQ(
        ::testing::internal::GetCapturedStderr(),
        std::string("error: rank 0 (pp 0, dp 0, tp 0) waits for ") + what +
            ", but rank 1 (pp 0, dp 0, tp 1) has ended its work; expected all ranks to make the same calls; find out "
            "why its body returned before the others'\n");
  }
}

TEST_F(NcclFailures, AnAbortEndsEveryMembersPendingAndLaterOperations) {
  std::atomic<int> ready{0}, ended{0};
  const auto [code, printed] = outcome_on_fake(3, 30, [&](World& world, ProcessGroup& group) {
    for (++ready; ready < 3;) std::this_thread::yield();  // all ranks have made the group
    if (world.rank() == 1) {
      group.abort("enough");
    } else {
      torch::Tensor tensor = torch::ones({5}, here());
      const auto reduce = [&] {
        group.all_reduce(tensor).wait();  // the device waits
        group.barrier().wait();           // the host waits
      };
      EXPECT_THROW(reduce(), PeerError);  // rank 1 never joins
    }
    torch::Tensor tensor = torch::ones({5}, here());
    EXPECT_THROW(group.all_reduce(tensor).wait(), PeerError);
    EXPECT_THROW(group.send(tensor, 0, {}).wait(), PeerError);
    EXPECT_THROW(world.backend().make_group("later", {0, 1, 2}), PeerError);
    ++ended;
  });
  EXPECT_EQ(ended, 3);
  EXPECT_EQ(code, 7);
  EXPECT_EQ(printed, "error: enough\n");
}

TEST_F(NcclFailures, ACommunicatorThatIsNeverReadyMeetsTheDeadline) {
  set_fake_joining(false);
  const auto [code, printed] = outcome_on_fake(2, 1, [](World&, ProcessGroup&) {});
  EXPECT_EQ(code, 7);
  EXPECT_NE(printed.find("waited 1 s for group 'tp' with rank"), std::string::npos) << printed;
  EXPECT_NE(printed.find("to be made"), std::string::npos) << printed;
}

TEST_F(NcclFailures, AMessageOfAnotherShapeIsRefused) {
  const auto [code, printed] = outcome_on_fake(2, 30, [](World& world, ProcessGroup& group) {
    if (world.rank() == 0) group.send(torch::ones({2, 3}, here()), 1, {}).wait();
    if (world.rank() == 1) group.recv(spec_here({3, 2}), 0, {}).wait();
  });
  EXPECT_EQ(code, 7);
  EXPECT_NE(printed.find("float32 [2, 3]"), std::string::npos) << printed;
  EXPECT_NE(printed.find("float32 [3, 2]"), std::string::npos) << printed;
}

TEST_F(NcclFailures, CommunicatorsThatWouldShareAStreamAreRefused) {
  // LibTorch's pools hand out streams in turn. Two communicators on the same stream could block each other
  // for ever. The pool has 2 streams of each of 3 priorities. 'tp' takes 3 of them, because it also carries
  // messages in both directions, and so does each further group.
  set_stream_pool(2);
  const auto make = [](World& world) { return world.backend().make_group("more", {0, 1}); };
  const auto [code, printed] = outcome_on_fake(2, 30, [&](World& world, ProcessGroup&) {
    for (int i = 0; i < 5; ++i) make(world)->barrier().wait();  // each reuses the streams of the last one
    const auto second = make(world);
    make(world);
  });
  set_stream_pool(32);
  EXPECT_EQ(code, 6);
  EXPECT_NE(printed.find("nccl: 6 communicators of this process already use all streams of pretend:"),
            std::string::npos)
      << printed;
}

// The operation is waited for on one stream, then on another one. Both streams continue only after it.
TEST_F(NcclFailures, EachStreamThatWaitsComesAfterTheOperation) {
  set_fake_faults([](const FakeCall&) { return FakeFault::kDelay; });
  const auto [code, printed] = outcome_on_fake(2, 30, [](World&, ProcessGroup& group) {
    const c10::Stream extra = NcclDevice(here().device()).pooled_stream();
    const int peer = 1 - group.rank();
    torch::Tensor sum = torch::ones({1000}, here()), sent = torch::full({5}, 7.0f, here());
    for (const bool message : {false, true}) {
      Work sending = message ? group.hand_over(sent, peer, {}) : Work();
      Work work = message ? group.recv(spec_here({5}), peer, {}) : group.all_reduce(sum);
      {
        const c10::StreamGuard on_stream(extra);
        work.wait();
      }
      if (message)
        EXPECT_TRUE(torch::equal(work.result(), sent));
      else
        work.wait();
    }
    EXPECT_TRUE(torch::equal(sum, torch::full({1000}, 2.0f, here())));
    group.barrier().wait();
  });
  EXPECT_EQ(code, 0) << printed;
}

// A deadline begins when the rank's earlier computation is done, however long that takes.
TEST_F(NcclFailures, WhatWasComputedBeforeIsNotWaitedFor) {
  run_ranks(1, [](World& world, ProcessGroupMesh&) {
    constexpr double kTimeout = 0.1;
    const NcclDevice device(here().device());
    std::promise<void> computed;
    std::shared_future<void> done(computed.get_future());
    auto job = std::make_shared<NcclJob>(world.backend(),
                                         NcclOptions{.device = here().device(),
                                                     .waits = {.timeout_seconds = kTimeout, .notice_seconds = kTimeout},
                                                     .describe_rank = [](int) { return "rank 0"; }});
    {
      NcclCommunicator communicator(job, {"group 'one'", {0}, 0}, new_unique_id());
      {
        const c10::Stream compute = device.pooled_stream();
        const c10::StreamGuard on_stream(compute);
        torch::Tensor tensor = torch::ones({4}, here());
        static_cast<PretendStream*>(device.handle(compute))->submit([done] { done.wait(); });
        communicator.issue(
            {tensor.storage()}, [] { return "a sum"; },
            [&](ncclComm_t one, cudaStream_t stream) {
              return ncclAllReduce(tensor.data_ptr(), tensor.data_ptr(), 4, ncclFloat32, ncclSum, one, stream);
            });
      }
      // Checks for five deadlines, with the function that the watch uses.
      const double begin = steady_seconds();
      while (steady_seconds() < begin + 5 * kTimeout) EXPECT_EQ(communicator.find_trouble(), "");
      EXPECT_FALSE(job->failed());
      computed.set_value();
    }
    job->close();
  });
}

TEST_F(NcclFailures, TypesWithoutASumAreRefused) {
  const auto [code, printed] = outcome_on_fake(2, 30, [](World&, ProcessGroup& group) {
    torch::Tensor flags = torch::ones({3}, here(torch::kBool));
    EXPECT_THROW(group.all_reduce(flags), UsageError);
    torch::Tensor same = torch::tensor({group.rank() == 0, true}, here(torch::kBool));
    group.broadcast(same, 0).wait();  // other collectives accept them
    EXPECT_TRUE(same[0].item<bool>());
  });
  EXPECT_EQ(code, 0) << printed;
}

TEST(NcclChoice, ABuildWithoutItSaysHowToGetIt) {
  const auto available = available_backends();
  const bool built = std::find(available.begin(), available.end(), "nccl") != available.end();
  std::string said;
  try {
    EXPECT_EQ(choose_backend("nccl"), "nccl");
  } catch (const ConfigError& error) {
    said = error.what();
  }
  EXPECT_EQ(said, built ? ""
                        : "comm.backend: backend 'nccl' is not part of this build; expected a backend that `gantry "
                          "doctor` lists; run ./dev setup "
                          "--nccl and build again, or use auto");
}

std::string refusal(const DeviceQuestion& question) {
  try {
    choose_device_index(question);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

using Visible = std::vector<std::vector<std::string>>;

// Returns the device index of every rank.
std::vector<int> indices(const Visible& visible, bool threads = false) {
  std::vector<int> chosen;
  for (int rank = 0; rank < static_cast<int>(visible.size()); ++rank)
    chosen.push_back(choose_device_index(
        {.rank = rank, .visible = visible, .threads = threads, .nccl_version = 23000, .sharing_asked = true}));
  return chosen;
}

TEST(NcclDevices, EachRankTakesItsOwnHoweverTheyAreNamed) {
  EXPECT_EQ(indices(Visible(4, {"a", "b", "c", "d"}), /*threads=*/true), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(indices({{"a", "b"}, {"a", "b"}, {"c", "d"}, {"c", "d"}}), (std::vector<int>{0, 1, 0, 1})) << "two hosts";
  EXPECT_EQ(indices({{"a"}, {"b"}}), (std::vector<int>{0, 0})) << "each sees its own";
  EXPECT_EQ(indices({{"a", "b"}, {"b", "a"}}), (std::vector<int>{0, 0})) << "in another order";
  EXPECT_EQ(indices({{"a", "b"}, {"a"}}), (std::vector<int>{1, 0})) << "who has a choice gives way";
  EXPECT_EQ(indices({{"a", "b", "c"}, {"a", "b"}, {"a"}}), (std::vector<int>{2, 1, 0}));
}

TEST(NcclDevices, SharingIsRefusedWhereItCantWork) {
  EXPECT_NE(refusal({.visible = {{}}}).find("sees no CUDA device"), std::string::npos);
  // Both ranks see the same device. Devices are compared by UUID, not by name.
  const Visible one(2, {"a"});
  EXPECT_NE(refusal({.rank = 1, .visible = one, .threads = true}).find("start them with mpirun"), std::string::npos);
  const DeviceQuestion old{.rank = 1, .visible = one, .nccl_version = 22907, .sharing_asked = true};
  EXPECT_NE(refusal(old).find("NCCL 2.29"), std::string::npos) << refusal(old);
  const DeviceQuestion unasked{.rank = 1, .visible = one, .nccl_version = 23203};
  EXPECT_EQ(refusal(unasked),
            "comm.backend: nccl has 2 ranks on this host, but 1 CUDA device (NCCL 2.32, NCCL_MULTI_RANK_GPU_ENABLE is "
            "not 1); expected one device per rank, or NCCL 2.30 or newer and NCCL_MULTI_RANK_GPU_ENABLE=1; use at most "
            "1 ranks, each with its own device, or comm.backend: ipc");
  EXPECT_EQ(indices(Visible(5, {"a", "b"})), (std::vector<int>{0, 1, 0, 1, 0}));
}

TEST(NcclDevices, ThreadRanksThatShareADeviceAreRefusedByAll) {
  std::atomic<int> refused{0};
  run_ranks(3, [&](World& world, ProcessGroupMesh&) {
    const std::vector<std::string> seen{"sixteen bytes, 1", "sixteen bytes, 2"};
    const DeviceQuestion question = ask_for_device(world.backend(), seen);
    EXPECT_EQ(question.visible, Visible(3, seen));
    EXPECT_EQ(question.rank, world.rank());
    EXPECT_TRUE(question.threads);
    refused += !refusal(question).empty();
  });
  EXPECT_EQ(refused, 3);
}

}  // namespace
}  // namespace gantry::testing
