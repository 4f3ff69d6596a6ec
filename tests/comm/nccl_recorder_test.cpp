// The flight recorder over NCCL, on support/fake_nccl. An operation that the host has put on a stream is not
// done until the device has completed it. `gantry doctor` names the operation in which the device hangs, not
// a later wait of the host.
#include <algorithm>
#include <gmock/gmock.h>
#include <tuple>

#include "failure_seen.h"
#include "gantry/diagnosis/diagnosis.h"
#include "gantry/diagnosis/flight_recorder.h"
#include "gantry/profiling/communication_meter.h"
#include "gantry/tensors/libtorch.h"
#include "nccl_ranks.h"
#include "program.h"

namespace gantry::testing {
namespace {

using recorder::Finding;
using ::testing::HasSubstr;

constexpr double kTimeout = 0.5;
constexpr Tag kLater{Tag::Kind::kForward, 4, 7, 0};

class RecorderOverNccl : public ::testing::Test {
 protected:
  using Body = std::function<void(World&, ProcessGroup&)>;

  void SetUp() override { reset_fake_counts(); }
  void TearDown() override {
    set_fake_faults(nullptr);
    EXPECT_EQ(fake_counts().live, 0) << "communicators are left";
    EXPECT_EQ(live_events(), 0);
  }

  // The current stream does not run on the rank's thread, so the host is asynchronous to its device, as with
  // a GPU.
  void run(const Body& body, double timeout = kTimeout) {
    Config config = layout_config({.tensor = 2});
    config.comm.timeout_seconds = timeout;
    config.output = scratch_.path();
    std::tie(code_, printed_) = outcome_on_fake(config, [&](World& world, ProcessGroup& group) {
      const c10::StreamGuard on_device(NcclDevice(here().device()).pooled_stream());
      elsewhere_.watch([&] { body(world, group); });
    });
  }
  void read() {
    job_ = recorder::read_folder(scratch_.path());
    diagnosis_ = recorder::diagnose(job_, 5);
  }
  void expect(Finding finding, const std::string& said) const {
    EXPECT_STREQ(name_of(diagnosis_.finding), name_of(finding)) << diagnosis_.sentence << "\n" << printed_;
    EXPECT_THAT(diagnosis_.sentence, HasSubstr(said));
  }
  // Returns the states of the rank's all_reduces, in their order.
  std::vector<recorder::State> sums_of(int rank) const {
    std::vector<recorder::State> states;
    for (const auto& operation : job_.records.at(rank).operations)
      if (operation.kind == recorder::Kind::kAllReduce) states.push_back(operation.state);
    return states;
  }

  const ScratchFolder scratch_;
  FailureSeen elsewhere_;  // watches the bodies in run()
  int code_ = -1;
  std::string printed_;
  recorder::JobRecords job_;
  recorder::Diagnosis diagnosis_;
};

// Puts `count` all_reduces on the device, and does not wait for the device.
void start_sums(ProcessGroup& group, torch::Tensor& tensor, int count) {
  for (int i = 0; i < count; ++i) group.all_reduce(tensor).wait();
}

void wait_for_device() {
  const NcclDevice device(here().device());
  c10::Event reached = device.new_event();
  reached.record(device.current_stream());
  reached.synchronize();
}

TEST_F(RecorderOverNccl, ADeviceThatHangsInACollectiveIsNamedNotTheHostsLaterWait) {
  set_fake_faults([](const FakeCall& call) {
    return call.kind == "ncclAllReduce" && call.rank == 0 && call.number == 3 ? FakeFault::kHang : FakeFault::kNone;
  });
  run([this](World& world, ProcessGroup& group) {
    torch::Tensor tensor = torch::ones({1000}, here());
    start_sums(group, tensor, 5);
    // Host 0 stays outside communication, and host 1 waits for a message from it.
    if (world.rank() == 0) elsewhere_.wait();
    if (world.rank() == 1) group.recv(spec_here({9}), 0, kLater).wait();
  });
  EXPECT_EQ(code_, PeerError::kExitCode);
  read();
  expect(Finding::kNotFinished, "for all_reduce 3 of group 'tp' (float32 [1000]) with rank ");
  expect(Finding::kNotFinished, "which is in it too");
  EXPECT_THAT(printed_, HasSubstr("all_reduce 3 of group 'tp'"));
  for (int rank = 0; rank < 2; ++rank) {
    const auto states = sums_of(rank);
    ASSERT_EQ(states.size(), 5u);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(states[i], recorder::State::kDone) << "rank " << rank << ", " << i;
    for (int i = 3; i < 5; ++i)
      EXPECT_TRUE(states[i] == recorder::State::kWaiting || states[i] == recorder::State::kFailed)
          << "rank " << rank << ", " << i << ": " << name_of(states[i]);
  }
}

TEST_F(RecorderOverNccl, ARankThatNeverComesIsNamedByWhatTheDeviceWaitsFor) {
  run([this](World& world, ProcessGroup& group) {
    torch::Tensor tensor = torch::ones({10}, here());
    start_sums(group, tensor, world.rank() == 0 ? 4 : 3);
    if (world.rank() == 0) group.recv(spec_here({9}), 1, kLater).wait();
    if (world.rank() == 1) elsewhere_.wait();
  });
  EXPECT_EQ(code_, PeerError::kExitCode);
  read();
  // Rank 0 waits for rank 1 both in the reduction on the device and for the message on the host.
  expect(Finding::kNotReached, "for rank 1 (pp 0, dp 0, tp 1) to ");
  expect(Finding::kNotReached,
         "which is outside communication; its last call, all_reduce 2 of group 'tp' (float32 [10]), was done");
}

TEST_F(RecorderOverNccl, WhatTheDeviceHasDoneIsDone) {
  set_fake_faults([](const FakeCall& call) { return call.number % 3 == 1 ? FakeFault::kDelay : FakeFault::kNone; });
  run(
      [](World& world, ProcessGroup& group) {
        torch::Tensor tensor = torch::ones({10}, here());
        start_sums(group, tensor, 20);
        Work message = world.rank() == 0 ? group.send(tensor, 1, kLater) : group.recv(spec_here({10}), 0, kLater);
        message.wait();
        wait_for_device();
      },
      /*timeout=*/30);
  EXPECT_EQ(code_, 0) << printed_;
  ASSERT_TRUE(recorder::write_flight_records("the test asks"));
  read();
  for (int rank = 0; rank < 2; ++rank)
    for (const auto& operation : job_.records.at(rank).operations)
      EXPECT_EQ(operation.state, recorder::State::kDone) << "rank " << rank << ", operation " << operation.number;
  expect(Finding::kNothing, "nothing is stuck");
}

TEST_F(RecorderOverNccl, ARanksDeviceIsSeenThroughEveryWrapper) {
  Config config = layout_config({.tensor = 2});
  config.output = scratch_.path();
  ASSERT_GT(config.comm.recorder, 0) << "it is on by default";
  EXPECT_EQ(launch_on_devices(config,
                              [&](World& world) {
                                EXPECT_NE(dynamic_cast<ObservedBackend*>(&world.backend()), nullptr);
                                EXPECT_EQ(world.device(), pretend_device(world.rank()));
                                ObservedBackend metered(world.backend(), std::make_shared<CommunicationMeter>());
                                World counted(metered, world.config(), world.mesh());
                                EXPECT_EQ(counted.device(), pretend_device(world.rank()));
                                EXPECT_STREQ(counted.backend().name(), "nccl");
                              }),
            0);
  run_ranks(2, [](World& world, ProcessGroupMesh&) {
    ObservedBackend metered(world.backend(), std::make_shared<CommunicationMeter>());
    World counted(metered, world.config(), world.mesh());
    EXPECT_TRUE(world.device().is_cpu());
    EXPECT_TRUE(counted.device().is_cpu());
  });
}

}  // namespace
}  // namespace gantry::testing
