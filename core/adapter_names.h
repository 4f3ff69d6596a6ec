// Special values of lora.target_modules.
#pragma once

namespace gantry {

inline constexpr const char* kAllLinear = "all-linear";  // every linear layer except the output layer

}  // namespace gantry
