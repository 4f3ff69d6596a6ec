#include "gantry/plugins/own_loop.h"

#include <fmt/format.h>

#include <torch/torch.h>

#include "gantry/core/error.h"

namespace gantry {
namespace {

// Nothing for one replica.
void average_in_place(const StageModule& module, ProcessGroup& replicas) {
  if (replicas.size() == 1) return;
  const torch::NoGradGuard no_grad;
  for (const auto& held : module.parameters) {
    torch::Tensor gradient = held.tensor.grad();
    if (!gradient.defined()) continue;
    replicas.all_reduce(gradient).wait();
    gradient.div_(replicas.size());
  }
}

}  // namespace

void refuse_what_needs_the_pipeline(const Config& config, const ProcessGroupMesh& mesh) {
  if (mesh.size(axis::kPipeline) != 1)
    throw ConfigError({"parallel.pipeline", fmt::format("is {}", mesh.size(axis::kPipeline)),
                       "1 for a model whose own forward is called", "run a pipeline by booster.execute_pipeline"});
  if (config.parallel.zero > 1)
    throw ConfigError({"parallel.zero", fmt::format("is {}", config.parallel.zero),
                       "0 or 1 for a model whose own forward is called", "run the steps by booster.execute_pipeline"});
}

void sync_own_loop(Boosted& boosted, const ProcessGroupMesh& mesh) {
  if (!boosted.optimizer) return average_in_place(boosted.model->stage_module(), mesh.batch_group());
  BoostedOptimizer& optimizer = *boosted.optimizer;
  if (optimizer.gradients().is_reduced())
    throw UsageError({"sync_gradients", "was called on gradients that are summed over the ranks already", "",
                      "call boosted.optimizer->zero_grad() after step(), and sync_gradients once before it"});
  optimizer.gradients().take_over();
  if (optimizer.masters()) optimizer.masters()->bring_in();
  optimizer.gradients().sync(1 / (optimizer.loss_scale() * mesh.batch_group().size()));
  optimizer.set_synced(true);
}

}  // namespace gantry
