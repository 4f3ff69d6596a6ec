#include "gantry/policies/model_split.h"

#include <algorithm>

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

LayerWork weights_of_layers(const StageLayout& stages, const torch::nn::Module& model) {
  LayerWork work;
  const auto modules = model.named_modules("", /*include_self=*/false);
  for (const auto& list : stages.repeated.lists())
    if (const auto* found = modules.find(list.path))
      for (const auto& layer : (*found)->children()) work.layers.push_back(matrix_weights(*layer));
  for (const auto& item : modules)
    if (std::ranges::count(stages.last, item.key()) > 0) work.last += matrix_weights(*item.value());
  return work;
}

LayerWork work_of(const ModelSplit& split, const torch::nn::Module& model) {
  return split.work ? *split.work : weights_of_layers(split.stages, model);
}

std::int64_t BatchUse::tokens_of(const TensorDict& batch) const {
  if (tokens_per_sample) return tokens_per_sample(batch);
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

}  // namespace gantry
