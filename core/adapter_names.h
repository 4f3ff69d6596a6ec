// What an adapter's configuration may say in place of names.
#pragma once

namespace gantry {

inline constexpr const char* kAllLinear = "all-linear";  // every linear layer but the output layer

}  // namespace gantry
