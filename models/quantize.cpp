#include "gantry/models/quantize.h"

#include <algorithm>

#include "gantry/core/error.h"
#include "gantry/models/lora.h"
#include "gantry/nn/experts.h"
#include "gantry/nn/linear.h"
#include "gantry/nn/router.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::models {
namespace {

bool is_shared(const torch::nn::Module& model, const torch::Tensor& weight) {
  std::int64_t names = 0;
  for (const auto& item : model.named_parameters()) names += item.value().is_same(weight) ? 1 : 0;
  return names > 1;
}

// Returns whether the module has such weights.
bool quantize_layer(const torch::nn::Module& model, nn::LinearImpl& layer, WeightCode code, bool trains) {
  if (!encodes_linear(code) || (trains && layer.weight.requires_grad()) || is_shared(model, layer.weight)) return false;
  layer.quantize(code);
  return true;
}

bool quantize_experts(nn::ExpertsImpl& experts, WeightCode code, bool trains) {
  const bool is_trained = experts.gate_up_proj.requires_grad() || experts.down_proj.requires_grad();
  if (!encodes_experts(code) || (trains && is_trained)) return false;
  experts.quantize(code);
  return true;
}

}  // namespace

void quantize_layers(torch::nn::Module& model, WeightCode code, const std::vector<std::string>& outputs, bool trains) {
  bool any = false;
  for (const auto& item : model.named_modules("", /*include_self=*/false)) {
    if (std::ranges::find(outputs, item.key()) != outputs.end() || is_label_head(item.key())) continue;
    if (auto* layer = dynamic_cast<nn::LinearImpl*>(item.value().get()))
      any = quantize_layer(model, *layer, code, trains) || any;
    if (auto* experts = dynamic_cast<nn::ExpertsImpl*>(item.value().get()))
      any = quantize_experts(*experts, code, trains) || any;
  }
  if (any) return;
  if (!encodes_linear(code))
    throw ConfigError({"model.quantize", "mxfp4 encodes experts only, but the model has no frozen experts",
                       "a model with gantry::nn::Experts, such as gpt-oss", "remove model.quantize"});
  throw ConfigError({"model.quantize", "the model has no linear layer that could be quantised",
                     "a model with gantry::nn::Linear layers", "remove model.quantize"});
}

CodedModules coded_modules(const torch::nn::Module& model) {
  CodedModules modules;
  for (const auto& item : model.named_modules("", /*include_self=*/false)) {
    const auto* linear = dynamic_cast<const nn::LinearImpl*>(item.value().get());
    if (linear && linear->encoding())
      modules.coded.push_back(item.key());
    else if (linear || dynamic_cast<const nn::RouterImpl*>(item.value().get()))
      modules.others.push_back(item.key());
  }
  return modules;
}

}  // namespace gantry::models
