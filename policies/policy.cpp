#include "gantry/policies/policy.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>

#include "gantry/tensors/libtorch.h"

namespace gantry {

std::vector<LayerList> layer_lists(const Policy& policy, const torch::nn::Module& model) {
  std::vector<LayerList> lists;
  const StageLayout layout = policy.split(model).stages;
  const auto modules = model.named_modules("", /*include_self=*/false);
  for (const auto& [path, with_first] : layout.repeated.lists()) {
    if (const auto* found = modules.find(path)) {
      lists.push_back({path, (*found)->children()});
      continue;
    }
    const std::string near = nearest_name(path, modules.keys());
    throw ConfigError({policy.name() + "::split", "the model has no module '" + path + "'",
                       "the path of its list of layers",
                       near.empty() ? "check the names of the model's modules" : "did you mean '" + near + "'?"});
  }
  return lists;
}

std::vector<std::string> output_layers(const Policy& policy, const torch::nn::Module& model) {
  const ModelSplit split = policy.split(model);
  std::vector<std::string> modules;
  for (const auto& output : split.split_outputs) modules.push_back(output.module);
  return modules;
}

int layer_count(const Policy& policy, const torch::nn::Module& model) {
  std::size_t count = 0;
  for (const auto& list : layer_lists(policy, model)) count += list.layers.size();
  return static_cast<int>(count);
}

std::string layer_path(const std::vector<LayerList>& lists, int layer) {
  for (const auto& [path, layers] : lists) {
    const int count = static_cast<int>(layers.size());
    if (layer < count) return fmt::format("{}.{}", path, layer);
    layer -= count;
  }
  throw InternalError({"layer_path", fmt::format("layer {} does not exist", layer), "", ""});
}

PolicyFit Policy::fit(const torch::nn::Module&) const { return PolicyFit::kNone; }
void Policy::validate(const torch::nn::Module&) const {}
void Policy::preprocess(torch::nn::Module&) const {}
void Policy::postprocess(torch::nn::Module&) const {}
SharedParameters Policy::shared_parameters(const torch::nn::Module&) const { return {}; }
ModelSplit Policy::split(const torch::nn::Module& model) const { return with_use(fields(model), model); }

std::vector<int> Policy::distribute_layers(int layers, int stages) const {
  return gantry::distribute_layers(layers, stages);
}

std::vector<std::string> Policy::held_layers(const torch::nn::Module& model, int stage, int num_stages,
                                             LayerRange layers) const {
  const StageLayout layout = split(model).stages;
  const auto lists = layer_lists(*this, model);
  std::vector<std::string> held;
  if (stage == 0) held = layout.first;
  int first = 0;
  for (std::size_t list = 0; list < lists.size(); ++list) {
    const auto& extra = layout.repeated.lists()[list].with_first;
    if (layers.contains(first) && !lists[list].layers.empty()) held.insert(held.end(), extra.begin(), extra.end());
    first += static_cast<int>(lists[list].layers.size());
  }
  for (int layer = layers.begin; layer < layers.end; ++layer) held.push_back(layer_path(lists, layer));
  if (stage == num_stages - 1) held.insert(held.end(), layout.last.begin(), layout.last.end());
  return held;
}

std::string policy_name_for(const torch::nn::Module& model) {
  std::map<PolicyFit, std::vector<std::string>> names;
  for (const auto& name : policies().names()) names[policies().at(name)()->fit(model)].push_back(name);
  names.erase(PolicyFit::kNone);
  if (names.empty())
    throw ConfigError({model.name(), "there is no registered policy for this class of model", "",
                       "register one with gantry::policies().add, or use gantry::parallelize_module with a plan"});
  const auto& nearest = names.rbegin()->second;
  if (nearest.size() > 1)
    throw ConfigError(
        {model.name(),
         fmt::format("{} registered policies match this class of model: {}", nearest.size(), fmt::join(nearest, ", ")),
         "one policy", "register only one of them, or choose one with model.policy"});
  return nearest.front();
}

std::shared_ptr<const Policy> policy_for(const torch::nn::Module& model) {
  auto policy = policies().at(policy_name_for(model))();
  policy->validate(model);
  return policy;
}

}  // namespace gantry
