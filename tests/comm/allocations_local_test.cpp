#include "allocations.h"

namespace gantry::testing {
namespace {

TEST(LocalBackend, CollectivesAllocateNothingInTheSteadyState) {
  for (const int ranks : {1, 2, 4})
    run_ranks(ranks, [](World&, ProcessGroupMesh& mesh) { collectives_allocate_nothing(mesh.world_group()); });
}

TEST(LocalBackend, MessagesAllocateTheirTensorsAlone) {
  for (const int ranks : {2, 4})
    run_ranks(ranks, [](World&, ProcessGroupMesh& mesh) { messages_allocate_their_tensors_alone(mesh.world_group()); });
}

}  // namespace
}  // namespace gantry::testing
