#include "gantry/booster/lora.h"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gantry/booster/lora_names.h"
#include "gantry/booster/name_patterns.h"
#include "gantry/checkpoint/adapter.h"
#include "gantry/core/config/adapter_names.h"
#include "gantry/core/sharding/adapter_split.h"
#include "gantry/models/adapter_modules.h"
#include "gantry/models/lora.h"
#include "gantry/models/peft_names.h"
#include "gantry/models/quantize.h"
#include "gantry/plugins/model_setup.h"
#include "gantry/policies/policy.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
std::vector<models::TensorName> family_names(const Config& config) {
  const auto& families = models::families();
  if (!families.contains(config.model.policy)) return {};
  const auto& text = config.model.config_json;
  return families.at(config.model.policy).tensor_names(nlohmann::json::parse(text.empty() ? "{}" : text));
}

std::vector<std::string> unadapted_parts(const Config& config) {
  const auto& families = models::families();
  const std::string& policy = config.model.policy;
  return families.contains(policy) ? families.at(policy).other_parts : std::vector<std::string>();
}

std::vector<std::string> unadapted_layers(const torch::nn::Module& model, const Config& config,
                                          const LoraConfig& lora) {
  if (lora.target_modules != std::vector<std::string>{kAllLinear}) return {};
  if (config.model.policy.empty())
    throw ConfigError({"lora.target_modules",
                       "the value is all-linear, but the output layer is unknown without model.policy",
                       "a list of names", "list the layers, or set model.policy"});
  return output_layers(*policies().at(config.model.policy)(), model);
}

LoraConfig lora_of_family(const Config& config, LoraConfig lora) {
  const auto& families = models::families();
  if (!lora.is_on() || !families.contains(config.model.policy)) return lora;
  return models::with_trained_heads(models::from_module_names(families.at(config.model.policy), std::move(lora)),
                                    family_names(config));
}

void load_adapter_of(const Config& config, const LoraConfig& lora, const std::vector<std::string>& parameters,
                     const std::vector<HeldTensor>& held, const Coordinates& coordinates,
                     const std::function<void(std::uint64_t)>& loaded) {
  auto trained = models::trained_names(parameters, lora, family_names(config));
  const auto& families = models::families();
  if (families.contains(config.model.policy))
    for (auto& name : trained)
      name.hugging_face = models::to_module_name(families.at(config.model.policy), name.hugging_face);
  load_adapter(lora.path, trained, held, coordinates, loaded, unadapted_parts(config));
}

void add_lora(torch::nn::Module& model, const Config& config) {
  config.mark_used("lora");
  if (!config.lora.is_on() || has_adapters(model)) return;
  models::add_adapters(model, config.lora, family_names(config), unadapted_layers(model, config, config.lora),
                       unadapted_parts(config));
}

void quantize_base(torch::nn::Module& model, const Config& config) {
  config.mark_used("model.quantize");
  config.mark_used("model.quantize_double");
  if (const auto code = weight_code(config.model.quantize, config.model.quantize_double))
    models::quantize_layers(model, *code, output_layers(*policies().at(config.model.policy)(), model),
                            config.lora.is_on());
}

void freeze_parameters(torch::nn::Module& model, const Config& config) {
  config.mark_used("train.freeze");
  if (config.train.freeze.empty()) return;
  NamePatterns frozen("train.freeze", config.train.freeze);
  std::vector<torch::Tensor> found;
  for (const auto& item : model.named_parameters())
    if (frozen.match(item.key())) found.push_back(item.value());
  frozen.check_use();
  for (auto& parameter : found) parameter.set_requires_grad(false);
  bool any = false;
  for (const auto& parameter : model.parameters()) any = any || parameter.requires_grad();
  if (!any)
    throw ConfigError({"train.freeze", "the patterns freeze every parameter", "at least one trained parameter",
                       "make the patterns narrower"});
}

}  // namespace gantry
