#include "gantry/booster/parallelized_model.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <torch/torch.h>

#include "gantry/checkpoint/hugging_face.h"
#include "gantry/core/error.h"
#include "gantry/models/model_family.h"
#include "gantry/plugins/gather.h"
#include "gantry/policies/model_map.h"

namespace gantry {
namespace {

std::vector<std::string> names_of(const std::vector<Placement>& placements) {
  std::vector<std::string> names;
  for (const auto& placement : placements) names.push_back(placement.name);
  return names;
}

std::vector<HeldTensor> held_by(torch::nn::Module& model, const TensorParallelModel& split) {
  std::map<std::string, torch::Tensor> parameters;
  for (const auto& [tensor, names] : ModelMap(model).parameters) parameters[names.front()] = tensor;
  std::vector<HeldTensor> held;
  for (const auto& placement : split.placements) held.push_back({placement, parameters.at(placement.name)});
  return held;
}

void copy_into(torch::nn::Module& dense, const TensorDict& whole) {
  const torch::NoGradGuard no_grad;
  const ModelMap map(dense);
  if (map.parameters.size() != whole.size())
    throw UsageError({"deparallelize", fmt::format("a model of {} parameters", map.parameters.size()),
                      fmt::format("{}", whole.size()), "pass an unsplit model of the same class"});
  for (const auto& [tensor, names] : map.parameters) {
    torch::Tensor target = tensor;
    const torch::Tensor& values = whole.at(names.front());
    if (target.sizes() != values.sizes())
      throw UsageError({names.front(), "is " + describe(target), describe(values),
                        "pass an unsplit model of the same configuration"});
    target.copy_(values);
  }
}

}  // namespace

void save_parallelized(const std::string& directory, const Boosted& boosted, HybridParallelPlugin& plugin,
                       const Config& config, bool merge) {
  if (boosted.optimizer) boosted.optimizer->wait();
  const auto& keys = config.model.config_json;
  save_parallelized(directory, nlohmann::json::parse(keys.empty() ? "{}" : keys),
                    boosted.model->stage_module().parameters, plugin.mesh(),
                    {.merge = merge, .family = config.model.policy});
}

void from_parallelized(const std::string& directory, Boosted& boosted, HybridParallelPlugin& plugin) {
  const auto& module = boosted.model->stage_module();
  from_parallelized(directory, module.parameters, names_of(module.all_placements), plugin.mesh());
  if (boosted.optimizer && boosted.optimizer->masters()) boosted.optimizer->masters()->refresh();
}

void deparallelize(const Boosted& boosted, HybridParallelPlugin& plugin, torch::nn::Module& dense) {
  if (boosted.optimizer) boosted.optimizer->wait();
  const auto& module = boosted.model->stage_module();
  copy_into(dense, gather_tensors(module, plugin.stages(), plugin.mesh(),
                                  [&](std::size_t i) { return module.parameters[i].tensor; }));
}

std::vector<std::string> load_weights(const Config& config, torch::nn::Module& model,
                                      const TensorParallelModel& split) {
  if (config.model.path.empty()) return {};
  const auto& keys = config.model.config_json;
  return load_hugging_face(config.model.path, models::families().at(config.model.policy),
                           nlohmann::json::parse(keys.empty() ? "{}" : keys), held_by(model, split),
                           {{"tp", split.mesh->coordinate("tp")}});
}

void save_parallelized(const std::string& directory, torch::nn::Module& model, const TensorParallelModel& split,
                       const nlohmann::json& config, const ParallelizedOptions& options) {
  save_parallelized(directory, config, held_by(model, split), *split.mesh, options);
}

void from_parallelized(const std::string& directory, torch::nn::Module& model, const TensorParallelModel& split) {
  from_parallelized(directory, held_by(model, split), names_of(split.placements), *split.mesh);
}

void deparallelize(torch::nn::Module& model, const TensorParallelModel& split, torch::nn::Module& dense) {
  static const PipelineStageManager kOneStage(0, 1);
  StageModule module(model.shared_from_this(), nullptr, {});
  module.parameters = held_by(model, split);
  module.all_placements = split.placements;
  copy_into(dense,
            gather_tensors(module, kOneStage, *split.mesh, [&](std::size_t i) { return module.parameters[i].tensor; }));
}

}  // namespace gantry
