// The files of a PEFT directory, and the base that it names. Without LibTorch.
#pragma once

#include <string>

namespace gantry {

inline constexpr const char* kAdapterConfig = "adapter_config.json";
inline constexpr const char* kAdapterModel = "adapter_model.safetensors";

// The directory of the base that an adapter names; empty if it names none.
std::string stated_base(const std::string& directory);

}  // namespace gantry
