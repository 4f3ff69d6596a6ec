#include "gantry/booster/parallelized_model.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gantry/core/error.h"
#include "gantry/optimizers/master_parameters.h"
#include "gantry/plugins/gather.h"
#include "gantry/policies/model_map.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

std::vector<std::string> names_of(const std::vector<Placement>& placements) {
  std::vector<std::string> names;
  for (const auto& placement : placements) names.push_back(placement.name);
  return names;
}

void copy_into(torch::nn::Module& dense, const TensorDict& full) {
  const torch::NoGradGuard no_grad;
  const ModelMap map(dense);
  if (map.parameters.size() != full.size())
    throw UsageError({"deparallelize", fmt::format("the model has {} parameters", map.parameters.size()),
                      fmt::format("{}", full.size()), "pass an unsharded model of the same class"});
  for (const auto& [tensor, names] : map.parameters) {
    torch::Tensor target = tensor;
    const torch::Tensor& values = full.at(names.front());
    if (target.sizes() != values.sizes())
      throw UsageError({names.front(), "the parameter is " + describe(target), describe(values),
                        "pass an unsharded model of the same configuration"});
    target.copy_(values);
  }
}

}  // namespace

void save_parallelized(const std::string& directory, const Boosted& boosted, Plugin& plugin,
                       const nlohmann::json& config, const ParallelizedOptions& options) {
  if (boosted.optimizer) boosted.optimizer->wait();
  save_parallelized(directory, config, boosted.model->stage_module().parameters, plugin.mesh(), options);
}

void save_parallelized(const std::string& directory, const Boosted& boosted, Plugin& plugin, const Config& config,
                       bool merge) {
  const auto& keys = config.model.config_json;
  save_parallelized(directory, boosted, plugin, nlohmann::json::parse(keys.empty() ? "{}" : keys),
                    {.merge = merge, .family = config.model.policy, .model_directory = config.model.path});
}

void from_parallelized(const std::string& directory, Boosted& boosted, Plugin& plugin) {
  const auto& module = boosted.model->stage_module();
  from_parallelized(directory, module.parameters, names_of(module.all_placements), plugin.mesh());
  if (boosted.optimizer && boosted.optimizer->masters()) boosted.optimizer->masters()->refresh();
}

void deparallelize(const Boosted& boosted, Plugin& plugin, torch::nn::Module& dense) {
  if (boosted.optimizer) boosted.optimizer->wait();
  const auto& module = boosted.model->stage_module();
  copy_into(dense, gather_tensors(module, plugin.stages(), plugin.mesh(),
                                  [&](std::size_t i) { return module.parameters[i].tensor; }));
}

}  // namespace gantry
