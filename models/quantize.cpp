#include "gantry/models/quantize.h"

#include <algorithm>

#include "gantry/core/error.h"
#include "gantry/models/lora.h"
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

}  // namespace

void quantize_layers(torch::nn::Module& model, WeightCode code, const std::vector<std::string>& outputs, bool trains) {
  bool any = false;
  for (const auto& item : model.named_modules("", /*include_self=*/false)) {
    auto* layer = dynamic_cast<nn::LinearImpl*>(item.value().get());
    if (!layer || std::ranges::find(outputs, item.key()) != outputs.end() || is_label_head(item.key())) continue;
    if ((trains && layer->weight.requires_grad()) || is_shared(model, layer->weight)) continue;
    layer->quantize(code);
    any = true;
  }
  if (!any)
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
