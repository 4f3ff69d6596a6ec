// adapter_config.json of a directory of PEFT's, as a configuration. Without LibTorch.
#pragma once

#include <string>

#include "gantry/core/config.h"

namespace gantry {

// True for a directory that has adapter_config.json.
bool is_adapter_directory(const std::string& path);

// What adapter_config.json says. InputError for a file that is missing or broken, and for an adapter of a kind that
// Gantry has not, by the name of its key.
LoraConfig read_adapter_config(const std::string& directory);

// The configuration with what lora.path says filled in; nothing changes without a path. ConfigError where the file says
// otherwise than a key that is stated beside it.
LoraConfig resolve_lora(LoraConfig stated);

}  // namespace gantry
