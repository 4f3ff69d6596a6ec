// ranks: 2 4
#include <cstdlib>
#include <vector>

#include "allocations.h"

namespace gantry::testing {
namespace {

TEST(MpiBackend, CollectivesOfOneHostAllocateNothingInTheSteadyState) {
  run_ranks(std::stoi(std::getenv("OMPI_COMM_WORLD_SIZE")), [](World& world, ProcessGroupMesh& mesh) {
    ASSERT_STREQ(world.backend().name(), "mpi");
    collectives_allocate_nothing(mesh.world_group());
  });
}

// Ranks that take themselves to be on several hosts: sums that pass from host to host, and messages from each to each.
TEST(MpiBackend, CollectivesBetweenHostsAllocateNothingInTheSteadyState) {
  const int ranks = std::stoi(std::getenv("OMPI_COMM_WORLD_SIZE"));
  const std::vector<const char*> placements =
      ranks == 2 ? std::vector{"0,1"} : std::vector{"0,0,1,1", "0,1,0,1", "0,1,2,3"};
  for (const char* hosts : placements) {
    ::setenv("GANTRY_PRETEND_HOSTS", hosts, 1);
    run_ranks(ranks, [](World&, ProcessGroupMesh& mesh) {
      collectives_allocate_nothing(mesh.world_group());
      messages_allocate_their_tensors_alone(mesh.world_group());
    });
    ::unsetenv("GANTRY_PRETEND_HOSTS");
  }
}

TEST(MpiBackend, MessagesAllocateTheirTensorsAlone) {
  run_ranks(std::stoi(std::getenv("OMPI_COMM_WORLD_SIZE")),
            [](World&, ProcessGroupMesh& mesh) { messages_allocate_their_tensors_alone(mesh.world_group()); });
}

}  // namespace
}  // namespace gantry::testing
