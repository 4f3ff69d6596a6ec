// ranks: 4
#include "conformance.h"

namespace gantry::testing {
namespace {

TEST(MpiBackend, ConformsAtEverySize) {
  run_ranks(4, [&](World& world, ProcessGroupMesh& mesh) {
    EXPECT_STREQ(world.backend().name(), "mpi");
    for (int size = 1; size <= 4; ++size)
      on_first_ranks(world, mesh, size, [](ProcessGroup& group) { check_conformance(group); });
  });
}

}  // namespace
}  // namespace gantry::testing
