// Which names an adapter's configuration means, and the rank and scale that it states for them. Without LibTorch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "gantry/core/config.h"

namespace gantry::models {

// PEFT's rule: an entry is a module's path, or the end of it behind a dot.
bool names_module(const std::string& entry, const std::string& path);

// Of the layer of that path in Hugging Face's names: patterns first. ConfigError where two patterns match it, or one is
// no regular expression.
std::int64_t rank_of(const LoraConfig& lora, const std::string& path);
double scale_of(const LoraConfig& lora, const std::string& path);

// lora.init_lora_weights.
bool is_pissa(const LoraConfig& lora);
std::optional<int> power_steps(const LoraConfig& lora);  // N of pissa_niter_N; unset: an exact decomposition
// Whether adapters have initial values that depend on the weights of the base.
bool starts_from_base(const LoraConfig& lora);
// The keys of PiSSA's adapters after their initial factors, negated, were appended: they have twice the rank and the
// same scale, and belong to the base with its own weights.
LoraConfig of_original_base(LoraConfig lora);

}  // namespace gantry::models
