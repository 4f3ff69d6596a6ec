// Matches the names in an adapter's configuration, and finds the rank and scale of a layer. Independent of
// LibTorch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "gantry/core/config.h"

namespace gantry::models {

// PEFT's rule: an entry is the path of a module, or the end of this path after a dot.
bool names_module(const std::string& entry, const std::string& path);

// The rank and the scale of the layer with this path in Hugging Face's names. Patterns have priority. Throws
// ConfigError if two patterns match the path, or if a pattern is not a regular expression.
std::int64_t rank_of(const LoraConfig& lora, const std::string& path);
double scale_of(const LoraConfig& lora, const std::string& path);

// Whether lora.init_lora_weights selects PiSSA.
bool is_pissa(const LoraConfig& lora);
std::optional<int> power_steps(const LoraConfig& lora);  // N of pissa_niter_N; unset: an exact decomposition
// Whether adapters have initial values that depend on the weights of the base.
bool starts_from_base(const LoraConfig& lora);
// Returns the keys of PiSSA adapters to which their negated initial factors were appended. They have twice
// the rank and the same scale, and belong to the base with its original weights.
LoraConfig of_original_base(LoraConfig lora);

}  // namespace gantry::models
