#include "description_cases.h"

namespace gantry::testing {

std::vector<DescriptionCase> description_cases() {
  const ModelCase base{.layers = 3, .heads = 4, .key_heads = 2, .vocabulary = 53, .dropout = 0.1, .batches = {4, 3}};
  const auto with = [&](const char* family, const char* keys) {
    ModelCase what = base;
    what.family = family;
    what.keys = keys;
    return what;
  };
  // AdamW normalizes gradients, which amplifies rounding errors in the small gradients of a rarely used
  // table.
  const auto by_small_steps = [](ModelCase what) {
    what.lr = 1e-3;
    return what;
  };
  return {
      {"window in every layer", with("mistral", R"({"sliding_window": 3, "head_dim": 10})")},
      {"windows in later layers", with("qwen2", R"({"use_sliding_window": true, "sliding_window": 2,
                                                     "max_window_layers": 1})")},
      {"norms of heads", with("qwen3", R"({"head_dim": 10})")},
      {"caps, scales, four norms", with("gemma2", R"({"sliding_window": 3, "head_dim": 8, "query_pre_attn_scalar": 20,
                                                      "attn_logit_softcapping": 2.0,
                                                      "final_logit_softcapping": 3.0})")},
      {"parallel, rows by head", with("gpt_neox", R"({"rotary_pct": 0.34, "hidden_size": 32})")},
      {"serial, rows by head", with("gpt_neox", R"({"rotary_pct": 0.34, "hidden_size": 32,
                                                    "use_parallel_residual": false})")},
      {"fused rows and gate", with("phi3", R"({"partial_rotary_factor": 0.67, "sliding_window": 4})")},
      {"longrope", with("phi3", R"({"original_max_position_embeddings": 5, "rope_scaling":
           {"type": "su", "attention_factor": 1.3, "short_factor": [1, 1.1, 1.5], "long_factor": [1, 2, 4]}})")},
      {"slopes, a norm behind the embedding", with("bloom", "{}")},
      {"slopes of heads that no power of two counts", with("bloom", R"({"n_head": 6})")},
      {"norms of all heads", with("olmo2", "{}")},
      {"norms of all heads, with a key head that all ranks share", with("olmo2", R"({"num_key_value_heads": 1})")},
      {"a rotary embedding for each kind of layers", with("olmo3", R"({"sliding_window": 3,
           "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]})")},
      {"positions with an offset", with("opt", "{}")},
      {"one key head, one norm", with("falcon", R"({"hidden_size": 20, "num_attention_heads": 5})")},
      {"rows by group", with("falcon", R"({"new_decoder_architecture": true, "num_kv_heads": 2})")},
      {"rows by group, one norm", with("falcon", R"({"new_decoder_architecture": true, "num_kv_heads": 3,
           "hidden_size": 36, "num_attention_heads": 6, "num_ln_in_parallel_attn": 1})")},
      {"rounded slopes, serial", with("falcon", R"({"alibi": true, "multi_query": false, "parallel_attn": false,
           "bias": true})")},
      {"multipliers", with("granite", R"({"embedding_multiplier": 3.5, "residual_multiplier": 0.6,
           "attention_multiplier": 0.25, "logits_scaling": 1.7})")},
      {"one norm without a bias, pairs that turn",
       with("cohere2", R"({"sliding_window": 3, "sliding_window_pattern": 2})")},
      {"a head with a bias", with("gptj", R"({"rotary_dim": 4})")},
      {"norms without parameters", with("olmo", "{}")},
      {"yarn", with("llama", R"({"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 50.0,
           "beta_fast": 2.0, "beta_slow": 0.5, "original_max_position_embeddings": 3}})")},
      {"dynamic", with("llama", R"({"max_position_embeddings": 4, "rope_scaling": {"type": "dynamic", "factor": 2}})")},
      {"linear", with("llama", R"({"rope_scaling": {"type": "linear", "factor": 2.5}})")},
      {"llama3", with("llama", R"({"rope_parameters": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.5,
           "high_freq_factor": 5.0, "original_max_position_embeddings": 32, "rope_theta": 1000.0}})")},
      {"experts", with("mixtral", R"({"num_local_experts": 5, "intermediate_size": 11, "hidden_act": "gelu"})")},
      {"one expert a token", with("qwen3_moe", R"({"num_experts": 4, "num_experts_per_tok": 1, "head_dim": 6,
           "moe_intermediate_size": 7})")},
      {"every expert", with("qwen3_moe", R"({"num_experts": 3, "num_experts_per_tok": 3, "norm_topk_prob": true,
           "head_dim": 6, "moe_intermediate_size": 7})")},
      {"an MLP beside the experts, with a gate; layers without", with("qwen2_moe", R"({"num_experts": 6,
           "num_experts_per_tok": 2, "moe_intermediate_size": 9, "shared_expert_intermediate_size": 10,
           "decoder_sparse_step": 2})")},
      {"sinks, experts with biases", with("gpt_oss", R"({"num_local_experts": 5, "num_experts_per_tok": 2,
           "head_dim": 6, "intermediate_size": 9, "sliding_window": 3, "swiglu_limit": 0.05})")},
      {"latent attention, experts of groups", with("deepseek_v3", R"({"num_key_value_heads": 4, "q_lora_rank": 10,
           "kv_lora_rank": 8, "qk_nope_head_dim": 5, "qk_rope_head_dim": 4, "v_head_dim": 6, "n_routed_experts": 8,
           "num_experts_per_tok": 3, "moe_intermediate_size": 7, "n_shared_experts": 2, "n_group": 4,
           "topk_group": 2, "first_k_dense_replace": 1})")},
      {"latent attention whose queries are not narrow", with("deepseek_v3", R"({"num_key_value_heads": 4,
           "q_lora_rank": null, "attention_bias": true, "kv_lora_rank": 8, "qk_nope_head_dim": 5,
           "qk_rope_head_dim": 4, "v_head_dim": 6, "n_routed_experts": 4, "num_experts_per_tok": 2,
           "moe_intermediate_size": 7, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 9})")},
      {"latent attention, groups by their best expert", with("deepseek_v2", R"({"num_key_value_heads": 4,
           "q_lora_rank": 10, "kv_lora_rank": 8, "qk_nope_head_dim": 5, "qk_rope_head_dim": 4, "v_head_dim": 6,
           "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 7, "n_group": 4, "topk_group": 2,
           "topk_method": "group_limited_greedy", "first_k_dense_replace": 1})")},
      {"layer norms of heads, biases everywhere", with("phi", R"({"qk_layernorm": true, "hidden_size": 32})")},
      {"norms of all heads, experts with an expert bias", with("minimax_m2", R"({"head_dim": 6, "rotary_dim": 4,
           "intermediate_size": 7, "num_local_experts": 5, "num_experts_per_tok": 2})")},
      {"learned positions, windows", with("gpt_neo", R"({"window_size": 3})")},
      {"rows in blocks", with("codegen", R"({"rotary_dim": 4})")},
      {"norms of heads after the rotary embedding", with("hunyuan_v1_dense", R"({"head_dim": 10, "rope_scaling":
           {"type": "dynamic", "factor": 1.0, "alpha": 3.0}})")},
      {"layer norms of 1 + weight, squared relu", with("nemotron", R"({"head_dim": 8})")},
      {"short convolutions with biases", with("lfm2", R"({"layer_types": ["conv", "full_attention", "conv"],
           "conv_L_cache": 4, "conv_bias": true, "block_multiple_of": 5})")},
      {"Mamba-2 in every layer", with("mamba2", R"({"num_heads": 6, "head_dim": 8, "n_groups": 2, "state_size": 5,
           "conv_kernel": 3, "use_bias": true, "time_step_limit": [0.01, 0.05]})")},
      {"Mamba-2, attention, experts next to an MLP", with("granitemoehybrid", R"({"mamba_n_heads": 6,
           "mamba_d_state": 5, "intermediate_size": 7, "shared_intermediate_size": 10, "num_local_experts": 4,
           "layer_types": ["mamba", "attention", "mamba"]})")},
      {"Mamba-2 next to attention", with("falcon_h1", R"({"mamba_d_ssm": 30, "mamba_n_heads": 6, "mamba_n_groups": 3,
           "mamba_d_state": 4, "mamba_rms_norm": true, "mamba_norm_before_gate": true, "key_multiplier": 0.7,
           "ssm_multipliers": [0.9, 0.6, 0.8, 1.2, 0.7], "mlp_multipliers": [0.8, 0.6]})")},
      {"Mamba in every layer", with("mamba", R"({"state_size": 5, "time_step_rank": 3, "use_bias": true})")},
      {"Mamba with norms, attention, experts in some layers", with("jamba", R"({"mamba_d_state": 5,
           "mamba_dt_rank": 4, "attn_layer_period": 3, "attn_layer_offset": 1, "num_experts": 4,
           "intermediate_size": 11})")},
      {"layers of one block each, experts without a gate", with("nemotron_h", R"({"head_dim": 10,
           "layers_block_type": ["linear_attention", "moe", "full_attention"], "mamba_num_heads": 6,
           "mamba_head_dim": 8, "n_groups": 2, "ssm_state_size": 5, "n_routed_experts": 4, "num_experts_per_tok": 2,
           "moe_intermediate_size": 7, "moe_shared_expert_intermediate_size": 10})")},
      {"an MLP alone in a layer", with("nemotron_h", R"({"head_dim": 10,
           "layers_block_type": ["mlp", "full_attention", "linear_attention"], "mamba_num_heads": 6,
           "mamba_head_dim": 8, "n_groups": 3, "ssm_state_size": 5})")},
      {"chunks, temperatures, experts with weighted inputs", with("llama4_text", R"({"head_dim": 8,
           "attention_chunk_size": 3, "floor_scale": 2, "attn_scale": 0.4, "no_rope_layer_interval": 2,
           "intermediate_size": 11, "intermediate_size_mlp": 13, "num_local_experts": 4, "num_experts_per_tok": 2,
           "interleave_moe_layer_step": 2})")},
      {"an expert bias in a row", with("ernie4_5_moe", R"({"moe_num_experts": 4, "moe_k": 2,
           "moe_intermediate_size": 7, "moe_num_shared_experts": 1})")},
      {"gated linear recurrences", with("recurrent_gemma", R"({"lru_width": 20, "attention_window_size": 4,
           "block_types": ["recurrent", "attention"]})")},
      {"an activation with trained slopes", with("apertus", "{}")},
      {"streams of a few layers", by_small_steps(with("gemma3n_text", R"({"head_dim": 6, "sliding_window": 3,
           "layer_types": ["sliding_attention", "full_attention", "full_attention"], "num_kv_shared_layers": 1,
           "vocab_size_per_layer_input": 49, "hidden_size_per_layer_input": 5, "laurel_rank": 3,
           "altup_num_inputs": 3, "altup_coef_clip": 0.02, "activation_sparsity_pattern": [0.4, 0.0, 0.6]})"))},
      {"learned positions, one key head", with("gpt_bigcode", "{}")},
      {"learned positions, rows by head", with("gpt_bigcode", R"({"multi_query": false})")},
  };
}

}  // namespace gantry::testing
