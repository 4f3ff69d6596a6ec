// ranks: 4 5 8
#include <cstdlib>

#include "conformance.h"
#include "waiting.h"

namespace gantry::testing {
namespace {

TEST(MpiBackend, ConformsAtEverySize) {
  const int ranks = std::stoi(std::getenv("OMPI_COMM_WORLD_SIZE"));
  run_ranks(ranks, [&](World& world, ProcessGroupMesh& mesh) {
    EXPECT_STREQ(world.backend().name(), "mpi");
    // The job of four takes every size up to it, larger ones the largest alone.
    for (int size = ranks > 4 ? ranks : 1; size <= ranks; ++size)
      on_first_ranks(world, mesh, size, [](ProcessGroup& group) { check_conformance(group); });
  });
}

TEST(MpiBackend, WaitingRanksLeaveTheCoresAlone) {
  const int ranks = std::stoi(std::getenv("OMPI_COMM_WORLD_SIZE"));
  run_ranks(ranks, [](World&, ProcessGroupMesh& mesh) { waiting_leaves_the_cores_alone(mesh.world_group(), 0.5); });
}

}  // namespace
}  // namespace gantry::testing
