// How the two factors A and B of an adapter are sharded. The adapter adds the product B A to a weight. Without
// LibTorch.
#pragma once

#include "gantry/core/shard_style.h"

namespace gantry {

inline constexpr const char* kAdapterA = "lora_A";  // [rank, in]
inline constexpr const char* kAdapterB = "lora_B";  // [out, rank]
// DoRA's norms of the rows, with PEFT's name.
inline constexpr const char* kAdapterMagnitude = "lora_magnitude_vector";  // [out]
// The factors of an embedding, with PEFT's names. PEFT stores A transposed.
inline constexpr const char* kTableAdapterA = "lora_embedding_A";  // [rows, rank]
inline constexpr const char* kTableAdapterB = "lora_embedding_B";  // [dim, rank]
// The trained rows of an embedding, with PEFT's name.
inline constexpr const char* kTrainedTokens = "trainable_tokens_delta";  // [tokens, dim]
// The factors of a stack of expert weights ("gate_up_proj_lora_A"), with one adapter per expert.
inline constexpr const char* kStackAdapterA = "_lora_A";  // [experts, rank, in]
inline constexpr const char* kStackAdapterB = "_lora_B";  // [experts, out, rank]

// The shards of both factors for a weight with this style, so that the adapter's output is sharded like the layer's.
// Column-parallel layer: A is replicated, and B is sharded by columns like the weight. Row-parallel layer: A is sharded
// by columns, B is replicated, and the adapter's partial sum joins the layer's. The gradient of the replicated factor
// is then a partial sum over the ranks. With other styles, both factors are placed like the weight. DoRA's magnitudes
// are placed like the rows of B. Throws ConfigError like split_of().
Placements split_of_adapter(const ShardStyle& style, const Shape& a, const Shape& b, const std::vector<Axis>& axes);

// The shards for an embedding [rows, dim]. If its rows are sharded, A is sharded by the same rows, and B is replicated:
// each rank has the gradient of B from its own rows, which nn::Embedding all-reduces in its backward. The trained
// tokens are placed like B.
Placements split_of_table_adapter(const ShardStyle& style, const Shape& a, const Shape& b,
                                  const std::vector<Axis>& axes);

// The shards for a stack of experts, kExpertStacks. Partitioned experts keep their adapters. If the width of each
// expert is sharded, the input stack is sharded by columns and down_proj by rows.
Placements split_of_stack_adapter(const std::string& parameter, const Expert& style, const ExpertShape& shape,
                                  const std::vector<Axis>& axes);

// Whether a parameter of that name belongs to an adapter ("h.0.attn.c_attn.lora_A"), and the path of its layer. For a
// stack of experts that is the path of the stack, "layers.0.mlp.experts.gate_up_proj".
bool is_adapter(const std::string& name);
bool is_stack_adapter(const std::string& name);
std::string adapted_layer(const std::string& name);

}  // namespace gantry
