// How the two factors of an adapter lie, whose product B A is added to a weight. Without LibTorch.
#pragma once

#include "gantry/core/shard_style.h"

namespace gantry {

inline constexpr const char* kAdapterA = "lora_A";  // [rank, in]
inline constexpr const char* kAdapterB = "lora_B";  // [out, rank]
// Of a table: PEFT's names; its A is stored turned.
inline constexpr const char* kTableAdapterA = "lora_embedding_A";  // [rows, rank]
inline constexpr const char* kTableAdapterB = "lora_embedding_B";  // [dim, rank]
// Of a stack of experts' weights, "gate_up_proj_lora_A": an adapter an expert.
inline constexpr const char* kStackAdapterA = "_lora_A";  // [experts, rank, in]
inline constexpr const char* kStackAdapterB = "_lora_B";  // [experts, out, rank]

// What the style makes of both, so that what the adapter gives lies as the layer's own output does. Where the layer is
// cut by columns, A is whole and B is cut by rows as the weight is; where it is cut by rows, A is cut by columns and B
// is whole, and the partial sums join the layer's own. The whole factor's gradient is then a partial sum: each rank
// has that of its part of the other. Elsewhere both lie as a weight does. ConfigError as of split_of.
Placements split_of_adapter(const ShardStyle& style, const Shape& a, const Shape& b, const std::vector<Axis>& axes);

// Likewise of a table [rows, dim]. Where its rows are cut, A is cut as they are, and B is whole: each rank has the part
// of B's gradient that its rows give, which nn::Embedding sums in its backward.
Placements split_of_table_adapter(const ShardStyle& style, const Shape& a, const Shape& b,
                                  const std::vector<Axis>& axes);

// Likewise of "gate_up_proj" or "down_proj" of experts. Partitioned experts take their adapters along; where their
// width is cut, gate_up_proj is cut by columns and down_proj by rows.
Placements split_of_stack_adapter(const std::string& parameter, const Expert& style, const ExpertShape& shape,
                                  const std::vector<Axis>& axes);

// Whether a parameter of that name is of an adapter: "h.0.attn.c_attn.lora_A"; and the layer that it is of. Of a stack
// of experts the latter is the stack, "layers.0.mlp.experts.gate_up_proj".
bool is_adapter(const std::string& name);
bool is_stack_adapter(const std::string& name);
std::string adapted_layer(const std::string& name);

}  // namespace gantry
