#include "gantry/plugins/own_loop.h"

#include <fmt/format.h>
#include <map>
#include <vector>

#include "gantry/core/error.h"
#include "gantry/core/sharding/zero_level.h"
#include "gantry/optimizers/gradient_buffers.h"
#include "gantry/optimizers/master_parameters.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

// Averages the gradients over the replicas, with one reduction per type. Does nothing for a single replica.
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

void refuse_what_needs_the_pipeline(const ParallelOptions& options, const ProcessGroupMesh& mesh) {
  if (mesh.size(axis::kPipeline) != 1)
    throw ConfigError({"parallel.pipeline",
                       fmt::format("{} stages are not supported if the program calls the model's forward itself "
                                   "(Loop::kOwn, gantry::initialize)",
                                   mesh.size(axis::kPipeline)),
                       "", "set it to 1, or run the steps with booster.execute_pipeline"});
  if (const int sharing = mesh.mesh().ranks_of_sequence(); sharing > 1)
    throw ConfigError(
        {"parallel.context",
         fmt::format("{} context ranks are not supported if the program calls the model's forward itself", sharing), "",
         "set it to 1, or run the steps with booster.execute_pipeline"});
  if (mesh.mesh().has_expert_view())
    throw ConfigError({"parallel.expert",
                       fmt::format("{} expert ranks are not supported if the program calls the model's forward itself",
                                   mesh.size(axis::kExpert)),
                       "", "set it to 1, or run the steps with booster.execute_pipeline"});
  if (options.devices.offload.any())
    throw ConfigError({"train.offload", "offloading is not supported if the program calls the model's forward itself",
                       "", "set it to none, or run the steps with booster.execute_pipeline"});
  if (options.devices.graphs)
    throw ConfigError({"train.device_graphs",
                       "CUDA graphs are not supported if the program calls the model's forward itself", "",
                       "remove the key, or run the steps with booster.execute_pipeline"});
  const auto& experts = options.experts;
  if (experts.balance != RouterLoss::kNone || experts.z_loss > 0 || experts.bias_update > 0)
    throw ConfigError(
        {"experts",
         "losses and expert biases of routers are not supported if the program calls the model's forward itself", "",
         "remove the section, or run the steps with booster.execute_pipeline"});
  if (zero_level(options.zero.stage).gradients)
    throw ConfigError(
        {"parallel.zero",
         fmt::format("ZeRO {} is not supported if the program calls the model's forward itself", options.zero.stage),
         "0 or 1", "run the steps with booster.execute_pipeline"});
}

void sync_own_loop(Boosted& boosted, const ProcessGroupMesh& mesh) {
  if (!boosted.optimizer) return average_in_place(boosted.model->stage_module(), mesh.batch_group());
  BoostedOptimizer& optimizer = *boosted.optimizer;
  if (optimizer.gradients().is_reduced())
    throw UsageError({"sync_gradients", "the gradients are already reduced over the ranks", "",
                      "call boosted.optimizer->zero_grad() after step(), and sync_gradients once before it"});
  optimizer.gradients().take_over();
  if (optimizer.masters()) optimizer.masters()->add_parameters();
  optimizer.gradients().sync(1 / (optimizer.loss_scale() * mesh.batch_group().size()));
  optimizer.set_state(BoostedOptimizer::Gradients::kSummed);
}

}  // namespace gantry
