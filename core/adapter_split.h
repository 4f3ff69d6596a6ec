// How the two factors of an adapter lie, whose product B A is added to a linear layer's weight. Without LibTorch.
#pragma once

#include "gantry/core/shard_style.h"

namespace gantry {

inline constexpr const char* kAdapterA = "lora_A";  // [rank, in]
inline constexpr const char* kAdapterB = "lora_B";  // [out, rank]

// What the style makes of both, so that what the adapter gives lies as the layer's own output does. Where the layer is
// cut by columns, A is whole and B is cut by rows as the weight is; where it is cut by rows, A is cut by columns and B
// is whole, and the partial sums join the layer's own. The whole factor's gradient is then a partial sum: each rank
// has that of its part of the other. Elsewhere both lie as a weight does. ConfigError as of split_of.
Placements split_of_adapter(const ShardStyle& style, const Shape& a, const Shape& b, const std::vector<Axis>& axes);

// Whether a parameter of that name is of an adapter: "h.0.attn.c_attn.lora_A"; and the layer that it is of.
bool is_adapter(const std::string& name);
std::string adapted_layer(const std::string& name);

}  // namespace gantry
