#include "gantry/policies/policy.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>

#include <torch/torch.h>

#include "gantry/nn/attention.h"
#include "gantry/nn/autograd_collectives.h"
#include "gantry/nn/embedding.h"
#include "gantry/nn/output_observer.h"
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

// Takes what add_loss is given on this thread, for its lifetime: in a recomputed layer a loss is one of its outputs.
class LossCollector {
 public:
  LossCollector() : former_(current_) { current_ = &sum_; }
  ~LossCollector() { current_ = former_; }
  LossCollector(const LossCollector&) = delete;
  LossCollector& operator=(const LossCollector&) = delete;

  static torch::Tensor* current() { return current_; }
  const torch::Tensor& sum() const { return sum_; }

 private:
  static thread_local torch::Tensor* current_;
  torch::Tensor sum_;
  torch::Tensor* former_;
};
thread_local torch::Tensor* LossCollector::current_ = nullptr;

void add_to(torch::Tensor& sum, const torch::Tensor& loss) { sum = sum.defined() ? sum + loss : loss; }

}  // namespace

torch::Tensor StageContext::run_layers(torch::Tensor hidden, const Layer& layer) const {
  int none = -1;
  int& running = settings_.running_layer ? *settings_.running_layer : none;
  for (const int index : layers()) {
    running = index;
    const Recomputation how = recomputation(index);
    const nn::RecomputeAttentionGuard selective(how == Recomputation::kSelective);
    if (how != Recomputation::kFull) {
      hidden = nn::observed_layer(index, layer(index, hidden));
      continue;
    }
    // `self`: a layer may speak to its stage again in the backward.
    const auto part = [self = weak_from_this().lock(), layer, index](const std::vector<torch::Tensor>& inputs) {
      const LossCollector added;
      std::vector<torch::Tensor> outputs{layer(index, inputs[0])};
      if (added.sum().defined()) outputs.push_back(added.sum());
      return outputs;
    };
    const auto outputs = nn::recompute_all(part, {hidden});
    hidden = nn::observed_layer(index, outputs[0]);
    if (outputs.size() > 1) add_to(added_loss_, outputs[1]);
  }
  running = -1;
  return hidden;
}

void StageContext::add_loss(const torch::Tensor& loss, const std::optional<Layout>& of) const {
  if (of && std::holds_alternative<Partial>(*of))
    throw UsageError({"add_loss", "was given a loss of Partial", "Shard{1} or Replicate{}",
                      "sum it over the ranks (gantry::reduce_from_group) before it is added"});
  ProcessGroup* group = settings_.sequence_group;
  if (group && !of)
    throw UsageError({"add_loss", "activations are sequence shards, and it is not said what the loss goes over",
                      "add_loss(loss, Shard{1}) for a sum over this rank's part of the sequence, add_loss(loss, "
                      "Replicate{}) for one over all of it",
                      "say which; without sequence parallelism it changes nothing"});
  add_to(LossCollector::current() ? *LossCollector::current() : added_loss_,
         group && std::holds_alternative<Shard>(*of) ? reduce_from_group(loss, *group) : loss);
}

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
  for (const auto& layer : layer_list(*this, model).children()) work.layers.push_back(matrix_weights(*layer));
  for (const auto& item : model.named_modules("", /*include_self=*/false))
    if (std::ranges::count(layout.last, item.key()) > 0) work.last += matrix_weights(*item.value());
  return work;
}

const torch::nn::Module& layer_list(const Policy& policy, const torch::nn::Module& model) {
  const std::string path = policy.stage_layout(model).repeated;
  const auto modules = model.named_modules("", /*include_self=*/false);
  if (const auto* found = modules.find(path)) return **found;
  const std::string near = nearest_name(path, modules.keys());
  throw ConfigError({policy.name() + "::stage_layout", "the model has no module '" + path + "'",
                     "the path of its list of layers",
                     near.empty() ? "check the names of the model's modules" : "did you mean '" + near + "'?"});
}

int layer_count(const Policy& policy, const torch::nn::Module& model) {
  if (policy.stage_layout(model).repeated.empty()) return 0;
  return static_cast<int>(layer_list(policy, model).children().size());
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

std::string policy_name_for(const torch::nn::Module& model) {
  std::map<PolicyFit, std::vector<std::string>> names;
  for (const auto& name : policies().names()) names[policies().at(name)()->fit(model)].push_back(name);
  names.erase(PolicyFit::kNone);
  if (names.empty())
    throw ConfigError({model.name(), "no registered policy is for a model of this class", "",
                       "register one by gantry::policies().add, or use gantry::parallelize_module with a plan"});
  const auto& nearest = names.rbegin()->second;
  if (nearest.size() > 1)
    throw ConfigError({model.name(),
                       fmt::format("{} registered policies are for a model of this class: {}", nearest.size(),
                                   fmt::join(nearest, ", ")),
                       "one where no policy is named",
                       "register one of them alone, or boost the model by model.policy"});
  return nearest.front();
}

std::shared_ptr<const Policy> policy_for(const torch::nn::Module& model) {
  auto policy = policies().at(policy_name_for(model))();
  policy->validate(model);
  return policy;
}

}  // namespace gantry
