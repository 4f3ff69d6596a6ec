// Multi-token prediction of decoders: the entries of the state between layers.
#pragma once

namespace gantry::models {

// The output of the model's last norm, while "hidden" belongs to a depth.
inline constexpr const char* kMainHidden = "main_hidden";

}  // namespace gantry::models
