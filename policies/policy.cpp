#include "gantry/policies/policy.h"

#include <fmt/format.h>

#include "gantry/nn/attention.h"
#include "gantry/nn/recompute.h"

namespace gantry {

std::vector<int> StageContext::layers() const {
  std::vector<int> indices;
  for (int layer = layers_.begin; layer < layers_.end; ++layer) indices.push_back(layer);
  return indices;
}

const TensorDict& StageContext::batch() const {
  static const TensorDict kNone;
  return settings_.batch ? *settings_.batch : kNone;
}

nn::TokenContext StageContext::tokens() const {
  if (settings_.tokens) return *settings_.tokens;
  return {.keep = nn::kept_tokens(batch().get("attention_mask")), .positions = {}};
}

Recomputation StageContext::recomputation(int index) const {
  const auto& counts = settings_.recomputed_layers;
  if (counts.empty()) return settings_.recomputation;
  const int count = counts.size() == 1 ? counts.front() : counts[stage_];
  return index - layers_.begin < count ? settings_.recomputation : Recomputation::kNone;
}

namespace {

// Autograd records a recomputed layer where its input requires a gradient. Parameters of the layer may require one
// where nothing before it does: the model's first layers may be frozen.
torch::Tensor recorded(const torch::Tensor& hidden) {
  if (hidden.requires_grad() || !torch::GradMode::is_enabled() || !hidden.is_floating_point()) return hidden;
  return hidden.detach().requires_grad_();
}

}  // namespace

torch::Tensor StageContext::run_layers(torch::Tensor hidden, const Layer& layer) const {
  int none = -1;
  int& running = settings_.running_layer ? *settings_.running_layer : none;
  for (const int index : layers()) {
    running = index;
    const Recomputation how = recomputation(index);
    const nn::RecomputeAttentionGuard selective(how == Recomputation::kSelective);
    if (how == Recomputation::kFull)
      hidden =
          nn::recompute([layer, index](const auto& inputs) { return layer(index, inputs[0]); }, {recorded(hidden)});
    else
      hidden = layer(index, hidden);
  }
  running = -1;
  return hidden;
}

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

Continuation Policy::continuation(const torch::nn::Module&) const { return {}; }

std::vector<int> Policy::distribute_layers(int layers, int stages) const {
  return gantry::distribute_layers(layers, stages);
}

std::vector<std::string> Policy::held_layers(const torch::nn::Module& model, int stage, int num_stages,
                                             LayerRange layers) const {
  const StageLayout layout = stage_layout(model);
  std::vector<std::string> held;
  if (stage == 0) held = layout.first;
  for (int layer = layers.begin; layer < layers.end; ++layer)
    held.push_back(fmt::format("{}.{}", layout.repeated, layer));
  if (stage == num_stages - 1) held.insert(held.end(), layout.last.begin(), layout.last.end());
  return held;
}

std::shared_ptr<const Policy> policy_for(const torch::nn::Module& model) {
  for (const auto& name : policies().names()) {
    auto policy = policies().at(name)();
    try {
      policy->validate(model);
      return policy;
    } catch (const ConfigError&) {  // another class's
    }
  }
  throw ConfigError({model.name(), "no registered policy is for a model of this class", "",
                     "register one by gantry::policies().add, or use gantry::parallelize_module with a plan"});
}

}  // namespace gantry
