// adapter_config.json, as PEFT writes it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "gantry/core/config.h"

namespace gantry {

inline constexpr const char* kAdapterConfig = "adapter_config.json";
inline constexpr const char* kAdapterModel = "adapter_model.safetensors";

// The base's directory that an adapter names; empty where it names none.
std::string stated_base(const std::string& directory);

// `layers`: the paths of all adapted layers, for all-linear. `transposed`: their weights are stored [in, out].
nlohmann::json adapter_config_json(const LoraConfig& lora, const std::string& base,
                                   const std::vector<std::string>& layers, bool transposed, bool causal);

}  // namespace gantry
