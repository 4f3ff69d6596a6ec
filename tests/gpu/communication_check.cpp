// The backend of a device: the conformance suite at one rank, and several ranks on one device, which are processes.
#include <gtest/gtest.h>

#include "../comm/conformance.h"
#include "checked_device.h"
#include "gantry/launch/launch.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::testing {
namespace {

TEST(DeviceBackend, ConformsAtOneRank) {
  Config config = layout_config({});
  config.comm.backend = checked_backend();
  const int code = launch(config, [](World& world) {
    ProcessGroupMesh mesh(world);
    EXPECT_EQ(world.device().is_cpu(), is_rehearsal());
    conformance_device() = world.device();
    check_conformance(mesh.world_group(), !is_rehearsal());
    conformance_device() = torch::kCPU;
    check_conformance(mesh.world_group(), !is_rehearsal());
  });
  EXPECT_EQ(code, 0);
}

// Tests for two processes under mpirun. They have a suite of their own, so that runs with one process can
// exclude them.
TEST(SharedDevice, ConformsAtTwoRanks) {
  Config config = layout_config({.tensor = 2});
  config.comm.backend = checked_backend();
  const bool is_nccl = checked_backend() == "nccl";
  for (const bool by_rank : {false, true}) {
    if (by_rank && !is_nccl) continue;  // other backends always add by rank
    config.comm.sums_by_rank = by_rank;
    const int code = launch(config, [&](World& world) {
      ProcessGroupMesh mesh(world);
      conformance_device() = world.device();
      check_conformance(mesh.world_group(), /*sends_until_received=*/is_nccl);
    });
    EXPECT_EQ(code, 0) << by_rank;
  }
}

TEST(SharedDevice, TwoRanksOnOneDevice) {
  ModelCase what;
  for (const Layout& layout : {Layout{.tensor = 2}, Layout{.pipeline = 2}, Layout{.data = 2}})
    expect_equal(run_case(what, {.layout = layout}, "mpi"), run_checked(what, {.layout = layout}), 1e-9,
                 describe(Parallelism{.layout = layout}));
}

}  // namespace
}  // namespace gantry::testing
