// ranks: 2, also over tcp
// Messages between stages that change, over MPI.
#include "ranks.h"
#include "stage_link_cases.h"

namespace gantry::testing {
namespace {

TEST(StageLinkOverMpi, MessagesMayChangeFromOneToTheNext) {
  run_ranks({.pipeline = 2}, [](World&, ProcessGroupMesh& mesh) { check_changing_messages(mesh["pp"]); });
}

}  // namespace
}  // namespace gantry::testing
