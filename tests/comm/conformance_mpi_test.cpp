// ranks: 4 5 8, also over tcp
#include "conformance.h"
#include "gantry/launch/backends.h"
#include "waiting.h"

namespace gantry::testing {
namespace {

TEST(ProcessBackend, ConformsAtEverySize) {
  const int ranks = launched_ranks();
  run_ranks(ranks, [&](World& world, ProcessGroupMesh& mesh) {
    EXPECT_STREQ(world.backend().name(), under_mpirun() ? "mpi" : "tcp");
    // The job of four ranks tests every size up to four. Larger jobs test only their full size.
    for (int size = ranks > 4 ? ranks : 1; size <= ranks; ++size)
      on_first_ranks(world, mesh, size, [](ProcessGroup& group) { check_conformance(group); });
  });
}

TEST(ProcessBackend, WaitingRanksLeaveTheCoresAlone) {
  const int ranks = launched_ranks();
  run_ranks(ranks, [](World&, ProcessGroupMesh& mesh) { waiting_leaves_the_cores_alone(mesh.world_group(), 0.5); });
}

}  // namespace
}  // namespace gantry::testing
