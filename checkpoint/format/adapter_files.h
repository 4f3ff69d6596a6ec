// A directory of PEFT's: its files, and the base that it names. Without LibTorch.
#pragma once

#include <string>

namespace gantry {

inline constexpr const char* kAdapterConfig = "adapter_config.json";
inline constexpr const char* kAdapterModel = "adapter_model.safetensors";

// The base's directory that an adapter names; empty where it names none.
std::string stated_base(const std::string& directory);

}  // namespace gantry
