#include "gantry/plugins/plugin_context.h"

#include "gantry/nn/logit_limit.h"

namespace gantry {
namespace {

// Checks the options before the schedule reads its file, so that errors about them come first.
ParallelOptions checked(ParallelOptions options, const Mesh& mesh) {
  check(options, mesh);
  return options;
}

}  // namespace

PluginContext::PluginContext(World& world, ParallelOptions given)
    : world(world),
      options(checked(std::move(given), world.mesh())),
      mesh(world),
      schedules(options.schedule, mesh.size(axis::kPipeline)),
      stages(mesh.coordinate(axis::kPipeline), schedules.stages_of_rank()),
      link(mesh[axis::kPipeline]),
      logit_limit(nn::default_logit_limit(world.device())) {
  if (mesh.mesh().ranks_of_sequence() > 1)
    layer_group = mesh.make_group("cp+tp", mesh.mesh().groups({axis::kContext, axis::kTensor}));
}

void PluginContext::report_times() {
  if (!times) return;
  for (const auto& [action, start, end] : times->take()) observer(action, start, end);
}

}  // namespace gantry
