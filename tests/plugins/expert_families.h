// Keys of config.json for small models with experts, of families with more features than Mixtral.
#pragma once

namespace gantry::testing {

// Shared experts with a gate, and every second layer dense.
constexpr const char* kQwen2MoeKeys = R"({"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 9,
    "shared_expert_intermediate_size": 10, "decoder_sparse_step": 2})";

// Interleaved columns of gate and up, biases, attention sinks and windows.
constexpr const char* kGptOssKeys = R"({"num_local_experts": 5, "num_experts_per_tok": 2, "head_dim": 6,
    "intermediate_size": 9, "sliding_window": 3, "swiglu_limit": 0.05})";

// Latent attention, expert groups, expert bias, two shared experts, and a dense first layer.
constexpr const char* kDeepseekKeys = R"({"num_key_value_heads": 4, "q_lora_rank": 10, "kv_lora_rank": 8,
    "qk_nope_head_dim": 5, "qk_rope_head_dim": 4, "v_head_dim": 6, "n_routed_experts": 8, "num_experts_per_tok": 3,
    "moe_intermediate_size": 7, "n_shared_experts": 2, "n_group": 4, "topk_group": 2, "first_k_dense_replace": 1})";

}  // namespace gantry::testing
