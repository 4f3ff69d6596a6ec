// Special values of lora.target_modules and lora.init_lora_weights.
#pragma once

namespace gantry {

inline constexpr const char* kAllLinear = "all-linear";  // every linear layer except the output layer

inline constexpr const char* kGaussian = "gaussian";
inline constexpr const char* kPissa = "pissa";
inline constexpr const char* kPissaSteps = "pissa_niter_";  // and a number
inline constexpr const char* kLoftq = "loftq";

}  // namespace gantry
