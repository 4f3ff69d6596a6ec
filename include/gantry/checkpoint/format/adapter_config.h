// Reads PEFT's adapter_config.json as a configuration. Independent of LibTorch.
#pragma once

#include <string>

#include "gantry/core/config.h"

namespace gantry {

// True if the directory has adapter_config.json.
bool is_adapter_directory(const std::string& path);

// Reads adapter_config.json. Throws InputError if the file is missing or damaged, or if the adapter has a feature that
// Gantry does not support; the error names its key.
LoraConfig read_adapter_config(const std::string& directory);

// Returns the configuration with the values from lora.path filled in; unchanged without a path. Throws ConfigError if a
// key is set to a different value than in the file.
LoraConfig resolve_lora(LoraConfig stated);

}  // namespace gantry
