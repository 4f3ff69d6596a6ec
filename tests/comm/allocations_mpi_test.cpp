// ranks: 2 4
#include <cstdlib>

#include "allocations.h"

namespace gantry::testing {
namespace {

TEST(MpiBackend, CollectivesOfOneHostAllocateNothingInTheSteadyState) {
  run_ranks(std::stoi(std::getenv("OMPI_COMM_WORLD_SIZE")), [](World& world, ProcessGroupMesh& mesh) {
    ASSERT_STREQ(world.backend().name(), "mpi");
    collectives_allocate_nothing(mesh.world_group());
  });
}

TEST(MpiBackend, MessagesAllocateTheirTensorsAlone) {
  run_ranks(std::stoi(std::getenv("OMPI_COMM_WORLD_SIZE")),
            [](World&, ProcessGroupMesh& mesh) { messages_allocate_their_tensors_alone(mesh.world_group()); });
}

}  // namespace
}  // namespace gantry::testing
