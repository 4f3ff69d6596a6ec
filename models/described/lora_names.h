// Which names an adapter's configuration means, and the rank and scale that it states for them. Without LibTorch.
#pragma once

#include <cstdint>
#include <string>

#include "gantry/core/config.h"

namespace gantry::models {

// PEFT's rule: an entry is a module's path, or the end of it behind a dot.
bool names_module(const std::string& entry, const std::string& path);

// Of the layer of that path in Hugging Face's names: patterns first. ConfigError where two patterns match it, or one is
// no regular expression.
std::int64_t rank_of(const LoraConfig& lora, const std::string& path);
double scale_of(const LoraConfig& lora, const std::string& path);

}  // namespace gantry::models
