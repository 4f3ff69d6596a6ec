#include "gantry/plugins/own_loop.h"

#include <fmt/format.h>
#include <map>
#include <vector>

#include <torch/torch.h>

#include "gantry/core/error.h"
#include "gantry/core/zero_level.h"
#include "gantry/optimizers/gradient_buffers.h"
#include "gantry/optimizers/master_parameters.h"

namespace gantry {
namespace {

// Nothing for one replica. One sum for all gradients of a type.
void average_in_place(const StageModule& module, ProcessGroup& replicas) {
  if (replicas.size() == 1) return;
  const torch::NoGradGuard no_grad;
  std::map<torch::ScalarType, std::vector<torch::Tensor>> gradients;
  for (const auto& held : module.parameters)
    if (const torch::Tensor gradient = held.tensor.grad(); gradient.defined())
      gradients[gradient.scalar_type()].push_back(gradient);
  for (auto& [type, of_type] : gradients) {
    std::vector<torch::Tensor> rows;
    std::vector<std::int64_t> sizes;
    for (const torch::Tensor& gradient : of_type) {
      rows.push_back(gradient.reshape({-1}));
      sizes.push_back(gradient.numel());
    }
    torch::Tensor flat = torch::cat(rows);
    replicas.all_reduce(flat).wait();
    const auto averages = flat.div_(replicas.size()).split_with_sizes(sizes);
    for (std::size_t i = 0; i < of_type.size(); ++i) of_type[i].copy_(averages[i].view_as(of_type[i]));
  }
}

}  // namespace

void refuse_what_needs_the_pipeline(const Config& config, const ProcessGroupMesh& mesh) {
  if (mesh.size(axis::kPipeline) != 1)
    throw ConfigError({"parallel.pipeline", fmt::format("is {}", mesh.size(axis::kPipeline)),
                       "1 for a model whose own forward is called", "run a pipeline by booster.execute_pipeline"});
  if (config.parallel.context > 1)
    throw ConfigError({"parallel.context", fmt::format("is {}", config.parallel.context),
                       "1 for a model whose own forward is called", "run the steps by booster.execute_pipeline"});
  if (config.parallel.expert > 1)
    throw ConfigError({"parallel.expert", fmt::format("is {}", config.parallel.expert),
                       "1 for a model whose own forward is called", "run the steps by booster.execute_pipeline"});
  if (config.train.offload != "none")
    throw ConfigError({"train.offload", "is " + config.train.offload, "none for a model whose own forward is called",
                       "run the steps by booster.execute_pipeline"});
  if (config.train.device_graphs)
    throw ConfigError({"train.device_graphs", "is there", "a model whose steps Gantry runs",
                       "run the steps by booster.execute_pipeline, or take the key out"});
  const auto& experts = config.experts;
  if (experts.balance != "none" || experts.z_loss > 0 || experts.bias_update > 0)
    throw ConfigError({"experts", "asks for losses or corrections of routers",
                       "none of them for a model whose own forward is called",
                       "run the steps by booster.execute_pipeline"});
  if (zero_level(config.parallel.zero).gradients)
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
  if (optimizer.masters()) optimizer.masters()->add_parameters();
  optimizer.gradients().sync(1 / (optimizer.loss_scale() * mesh.batch_group().size()));
  optimizer.set_synced(true);
}

}  // namespace gantry
