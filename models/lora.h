// Which layers of a model get an adapter (LoRA), by the names that Hugging Face's files and PEFT's have for them.
#pragma once

#include <string>
#include <vector>

#include <torch/nn/module.h>

#include "gantry/core/config.h"
#include "gantry/models/model_family.h"

namespace gantry::models {

inline constexpr const char* kAllLinear = "all-linear";

// PEFT's rule: an entry is a module's path, or the end of it behind a dot.
bool names_module(const std::string& entry, const std::string& path);

// Of the layer of that path in Hugging Face's names: patterns first. ConfigError where two patterns match it, or one is
// no regular expression.
std::int64_t rank_of(const LoraConfig& lora, const std::string& path);
double scale_of(const LoraConfig& lora, const std::string& path);

// The path of a module in Hugging Face's files, by the name of its weight or of another of its parameters: its own
// where `names` have none. `transposed`: weights are stored [in, out] there.
struct ModulePath {
  std::string path;
  bool transposed = false;
};
ModulePath hugging_face_path(const std::string& module, const std::vector<TensorName>& names);

// Adds adapters to the gantry::nn::Linear layers that `lora` names, and freezes all parameters but those of adapters
// and of modules_to_save. `outputs`: paths of output layers, which all-linear leaves out. `names`: of the model's
// family, empty for a model of one's own. ConfigError for an entry that matches nothing (with the nearest name), or
// what has no adapters; for a tied parameter that would be trained.
void add_adapters(torch::nn::Module& model, const LoraConfig& lora, const std::vector<TensorName>& names,
                  const std::vector<std::string>& outputs);

// PEFT's names of what is trained: of the adapters and modules_to_save among `parameters`, registered names.
std::vector<TensorName> trained_names(const std::vector<std::string>& parameters, const LoraConfig& lora,
                                      const std::vector<TensorName>& names);

}  // namespace gantry::models
