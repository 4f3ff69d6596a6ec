// ranks: 1
// Errors if ranks cannot share a device, or if one rank does not arrive. Each test starts a job with mpirun.
#include <cstdlib>
#include <gtest/gtest.h>

#include "gantry/comm/shared_device/cuda_sharing.h"
#include "gantry/core/error.h"
#include "gantry/launch/backends.h"
#include "gantry/tensors/libtorch.h"
#include "mpi_job.h"
#include "shared_device_ranks.h"
#include "thrown_by.h"

namespace gantry::testing {
namespace {

bool is_second() { return std::string(std::getenv("OMPI_COMM_WORLD_RANK")) == "1"; }

// One of two ranks that share a device. `uuid` is the UUID of the device as this rank sees it. `body` gets a
// group of both ranks.
struct SharingRank {
  double timeout_seconds = 30;
  std::string uuid = "GPU-1";

  [[noreturn]] void run(const std::function<void(World&, ProcessGroup&)>& body) const {
    Config config = layout_config({.tensor = launched_ranks()});
    config.comm.timeout_seconds = timeout_seconds;
    config.comm.recorder = 0;
    std::exit(launch_on_shared_device(
        config,
        [&](World& world) {
          const auto group = world.backend().make_group("tp", {0, 1});
          body(world, *group);
          group->barrier().wait();
        },
        uuid));
  }
};

void do_nothing(World&, ProcessGroup&) {}

TEST(SharedDeviceFailures, ABuildOrAMachineWithoutCudaSaysSo) {
  if (has_backend("ipc"))
    EXPECT_EQ(choose_base_backend(choose_backend("ipc")), "mpi");
  else
    EXPECT_NE(thrown_by<ConfigError>([] { choose_backend("ipc"); }).find("'ipc' is not part of this build"),
              std::string::npos);
  if (!torch::cuda::is_available())
    EXPECT_NE(thrown_by<ResourceError>([] { share_cuda_device(); }).find("this process sees no CUDA device"),
              std::string::npos);
}

TEST(Job, DISABLED_OtherDevice) { SharingRank{.uuid = is_second() ? "GPU-2" : "GPU-1"}.run(do_nothing); }
TEST(SharedDeviceFailures, DevicesThatDifferAreNamed) {
  const JobOutcome outcome = run_job(2, "OtherDevice");
  EXPECT_EQ(outcome.exit_code, ResourceError::kExitCode) << outcome.output;
  EXPECT_EQ(outcome.count("error: "), 1) << outcome.output;
  EXPECT_EQ(outcome.count("comm.backend: ipc cannot be used, because rank 1 (pp 0, dp 0, tp 1) has the device GPU-2, "
                          "but rank 0 (pp 0, dp 0, tp 0) has GPU-1; expected one device for all ranks"),
            1)
      << outcome.output;
}

TEST(Job, DISABLED_OtherHost) {
  ::setenv("GANTRY_PRETEND_HOSTS", "0,1", 1);
  SharingRank{}.run(do_nothing);
}
TEST(SharedDeviceFailures, RanksOnSeveralHostsAreRefused) {
  const JobOutcome outcome = run_job(2, "OtherHost");
  EXPECT_EQ(outcome.exit_code, ResourceError::kExitCode) << outcome.output;
  EXPECT_EQ(outcome.count(
                "comm.backend: ipc cannot be used, because rank 1 (pp 0, dp 0, tp 1) is on another host than rank 0"),
            1)
      << outcome.output;
}

TEST(Job, DISABLED_OtherContainer) {
  set_sharing_faults({.refuses_memory = is_second()});
  SharingRank{}.run(do_nothing);
}
TEST(SharedDeviceFailures, MemoryThatCantBeOpenedIsSaidBeforeTheBody) {
  const JobOutcome outcome = run_job(2, "OtherContainer");
  EXPECT_EQ(outcome.exit_code, ResourceError::kExitCode) << outcome.output;
  EXPECT_EQ(outcome.count("rank 1 (pp 0, dp 0, tp 1): memory of rank 0 (pp 0, dp 0, tp 0) cannot be opened: pretended "
                          "device: invalid context"),
            1)
      << outcome.output;
  EXPECT_EQ(outcome.count("--ipc=host"), 1) << outcome.output;
}

TEST(Job, DISABLED_RankStaysAway) {
  SharingRank{.timeout_seconds = 1}.run([](World& world, ProcessGroup& group) {
    if (world.rank() == 1) stay_away();
    torch::Tensor tensor = torch::ones({5}, world.device());
    group.all_reduce(tensor).wait();
  });
}
TEST(SharedDeviceFailures, ADeadlineSaysWhoWaitedForWhom) {
  const JobOutcome outcome = run_job(2, "RankStaysAway");
  EXPECT_EQ(outcome.exit_code, PeerError::kExitCode) << outcome.output;
  EXPECT_EQ(outcome.count("rank 0 (pp 0, dp 0, tp 0) waited 1 s for all_reduce of float32 [5], number 0 of group 'tp', "
                          "which rank 1 (pp 0, dp 0, tp 1) has not joined"),
            1)
      << outcome.output;
}

TEST(Job, DISABLED_OtherSizes) {
  SharingRank{}.run([](World& world, ProcessGroup& group) {
    torch::Tensor tensor = torch::ones({world.rank() == 1 ? 7 : 6}, world.device());
    group.all_reduce(tensor).wait();
  });
}
TEST(SharedDeviceFailures, CallsThatDifferAreNamed) {
  const JobOutcome outcome = run_job(2, "OtherSizes");
  EXPECT_EQ(outcome.exit_code, PeerError::kExitCode) << outcome.output;
  EXPECT_EQ(outcome.count("bytes from"), 1) << outcome.output;
  EXPECT_EQ(outcome.count("all members must make the same calls in the same order"), 1) << outcome.output;
}

TEST(Job, DISABLED_MessageWithoutSender) {
  SharingRank{.timeout_seconds = 1}.run([](World& world, ProcessGroup& group) {
    if (world.rank() == 1) stay_away();
    group.recv({{3}, torch::kFloat32, world.device()}, 1, {Tag::Kind::kForward, 0, 3, 0}).wait();
  });
}
TEST(SharedDeviceFailures, AMessageThatDoesNotComeIsNamed) {
  const JobOutcome outcome = run_job(2, "MessageWithoutSender");
  EXPECT_EQ(outcome.exit_code, PeerError::kExitCode) << outcome.output;
  EXPECT_EQ(
      outcome.count("rank 0 (pp 0, dp 0, tp 0) waited 1 s for forward of stage 0, microbatch 3, entry 0 from rank 1"),
      1)
      << outcome.output;
}

}  // namespace
}  // namespace gantry::testing
