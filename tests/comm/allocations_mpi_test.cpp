// ranks: 2 4, also over tcp
#include <cstdlib>
#include <vector>

#include "allocations.h"
#include "gantry/launch/backends.h"

namespace gantry::testing {
namespace {

TEST(ProcessBackend, CollectivesOfOneHostAllocateNothingInTheSteadyState) {
  run_ranks(launched_ranks(), [](World& world, ProcessGroupMesh& mesh) {
    ASSERT_STREQ(world.backend().name(), under_mpirun() ? "mpi" : "tcp");
    collectives_allocate_nothing(mesh.world_group());
  });
}

// The ranks behave as if they were on several hosts: with partial sums passed from host to host, and with
// messages between all pairs.
TEST(ProcessBackend, CollectivesBetweenHostsAllocateNothingInTheSteadyState) {
  const int ranks = launched_ranks();
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

TEST(ProcessBackend, MessagesAllocateTheirTensorsAlone) {
  run_ranks(launched_ranks(),
            [](World&, ProcessGroupMesh& mesh) { messages_allocate_their_tensors_alone(mesh.world_group()); });
}

}  // namespace
}  // namespace gantry::testing
