#include "gantry/policies/policy.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>

#include <torch/torch.h>

#include "gantry/nn/embedding.h"

namespace gantry {

namespace {

double matrix_weights(const torch::nn::Module& module) {
  double weights = 0;
  const bool looks_up = dynamic_cast<const torch::nn::EmbeddingImpl*>(&module) != nullptr ||
                        dynamic_cast<const nn::EmbeddingImpl*>(&module) != nullptr;
  for (const auto& item : module.named_parameters(/*recurse=*/false))
    if (item.value().defined() && item.value().dim() > 1 && !looks_up)
      weights += static_cast<double>(item.value().numel());
  for (const auto& child : module.children()) weights += matrix_weights(*child);
  return weights;
}

}  // namespace

LayerWork Policy::layer_work(const torch::nn::Module& model) const {
  const StageLayout layout = stage_layout(model);
  LayerWork work;
  for (const auto& list : layer_lists(*this, model))
    for (const auto& layer : list.layers) work.layers.push_back(matrix_weights(*layer));
  for (const auto& item : model.named_modules("", /*include_self=*/false))
    if (std::ranges::count(layout.last, item.key()) > 0) work.last += matrix_weights(*item.value());
  return work;
}

std::vector<LayerList> layer_lists(const Policy& policy, const torch::nn::Module& model) {
  std::vector<LayerList> lists;
  const StageLayout layout = policy.stage_layout(model);
  const auto modules = model.named_modules("", /*include_self=*/false);
  for (const auto& [path, with_first] : layout.repeated.lists()) {
    if (const auto* found = modules.find(path)) {
      lists.push_back({path, (*found)->children()});
      continue;
    }
    const std::string near = nearest_name(path, modules.keys());
    throw ConfigError({policy.name() + "::stage_layout", "the model has no module '" + path + "'",
                       "the path of its list of layers",
                       near.empty() ? "check the names of the model's modules" : "did you mean '" + near + "'?"});
  }
  return lists;
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
std::vector<SplitOutput> Policy::split_outputs(const torch::nn::Module&) const { return {}; }

std::int64_t Policy::tokens_per_sample(const TensorDict& batch) const {
  if (const torch::Tensor ids = batch.get("input_ids"); ids.defined()) return ids.dim() > 1 ? ids.size(1) : 1;
  std::int64_t tokens = 0;
  for (const auto& [name, tensor] : batch) {
    if (!tensor.defined() || tensor.dim() != 2 || !at::isIntegralType(tensor.scalar_type(), /*includeBool=*/true))
      continue;
    if (tokens != 0 && tokens != tensor.size(1)) return 0;
    tokens = tensor.size(1);
  }
  return tokens;
}

std::optional<VocabularyModules> Policy::vocabulary(const torch::nn::Module&) const { return std::nullopt; }

std::optional<AttentionHeads> Policy::context_heads(const torch::nn::Module&) const { return std::nullopt; }
std::string Policy::joint_loss(const torch::nn::Module&) const { return ""; }
Continuation Policy::continuation(const torch::nn::Module&) const { return {}; }

std::vector<int> Policy::distribute_layers(int layers, int stages) const {
  return gantry::distribute_layers(layers, stages);
}

std::vector<std::string> Policy::held_layers(const torch::nn::Module& model, int stage, int num_stages,
                                             LayerRange layers) const {
  const StageLayout layout = stage_layout(model);
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
