// ranks: 2
#include "allocations.h"

namespace gantry::testing {
namespace {

TEST(MpiBackend, CollectivesOfOneHostAllocateNothingInTheSteadyState) {
  run_ranks(2, [](World& world, ProcessGroupMesh& mesh) {
    ASSERT_STREQ(world.backend().name(), "mpi");
    collectives_allocate_nothing(mesh.world_group());
  });
}

}  // namespace
}  // namespace gantry::testing
