// The steps that adding, loading and exchanging adapters of a configured model share.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <torch/nn/module.h>

#include "gantry/core/config.h"
#include "gantry/models/model_family.h"
#include "gantry/tensors/state_source.h"

namespace gantry {

// The names of the model's tensors in Hugging Face's files. Empty for a model without a family.
std::vector<models::TensorName> family_names(const Config& config);

// The parts that get no adapters (ModelFamily::other_parts). Empty for a model without a family.
std::vector<std::string> unadapted_parts(const Config& config);

// The layers that all-linear does not adapt. Empty for another value of target_modules. Throws ConfigError without
// model.policy.
std::vector<std::string> unadapted_layers(const torch::nn::Module& model, const Config& config, const LoraConfig& lora);

// Returns the keys of an adapter, with the names of the model's files, and with its heads for labels.
LoraConfig lora_of_family(const Config& config, LoraConfig lora);

// Loads this rank's part of the adapter in `lora.path` into the tensors among `held` that it trains. `parameters`: the
// registered names of all parameters, held or not. For the other parameters and errors, see load_adapter().
void load_adapter_of(const Config& config, const LoraConfig& lora, const std::vector<std::string>& parameters,
                     const std::vector<HeldTensor>& held, const Coordinates& coordinates,
                     const std::function<void(std::uint64_t)>& loaded);

// Applies model.quantize to a model of a family, after add_lora(). Does nothing without the key.
void quantize_base(torch::nn::Module& model, const Config& config);

}  // namespace gantry
