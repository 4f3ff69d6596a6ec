"""Makes cases.json and tensors.safetensors: a small model for each published configuration of FACTS.

    python tests/golden/hub/make_hub.py

transformers 5.23.0, torch 2.13.0, one CPU thread. FACTS states keys and values of published files; SIZES replaces their
sizes. Weights are random, rounded to bfloat16. Logits are computed in float64 with eager attention, and stored in float32.
"""
import json
import pathlib
import tempfile

import torch
import transformers
from safetensors.torch import save_file

TOKENS = 24
GENERAL = {"use_cache": True, "transformers_version": "4.40.0"}
SIZES = {"vocab_size": TOKENS, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4,
         "max_position_embeddings": 32, "bos_token_id": 1, "eos_token_id": 2}
GROUPED = SIZES | {"num_key_value_heads": 2}
SHORT = {"vocab_size": TOKENS, "n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": 32, "bos_token_id": 1,
         "eos_token_id": 2}
SUMMARY = {"summary_activation": None, "summary_first_dropout": 0.1, "summary_proj_to_labels": True,
           "summary_type": "cls_index", "summary_use_proj": True}


def causal(name, sizes, **keys):
    return {"architectures": [name], "torch_dtype": "bfloat16"} | GENERAL | sizes | keys


FACTS = {
    "SmolLM2-135M-Instruct": causal(
        "LlamaForCausalLM", GROUPED, model_type="llama", is_llama_config=True, rope_interleaved=False, rope_scaling=None,
        rope_theta=100000, rms_norm_eps=1e-5, tie_word_embeddings=True, pretraining_tp=1, hidden_act="silu",
        attention_bias=False, mlp_bias=False, **{"transformers.js_config": {"kv_cache_dtype": {"fp16": "float16"}}}),
    "Llama-3.1-8B": causal(
        "LlamaForCausalLM", GROUPED, model_type="llama", rope_theta=500000.0, rms_norm_eps=1e-5, mlp_bias=False,
        rope_scaling={"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                      "original_max_position_embeddings": 32, "rope_type": "llama3"}, unsloth_fixed=True),
    "Mistral-7B-v0.1": causal("MistralForCausalLM", GROUPED, model_type="mistral", rope_theta=10000.0, rms_norm_eps=1e-5,
                              sliding_window=6, tie_word_embeddings=False),
    "Mixtral-8x7B-v0.1": causal(
        "MixtralForCausalLM", GROUPED, model_type="mixtral", rope_theta=1e6, rms_norm_eps=1e-5, sliding_window=None,
        num_local_experts=4, num_experts_per_tok=2, output_router_logits=False, router_aux_loss_coef=0.02),
    "Qwen2.5-1.5B": causal(
        "Qwen2ForCausalLM", GROUPED, model_type="qwen2", rope_theta=1e6, rms_norm_eps=1e-6, use_mrope=False,
        use_sliding_window=False, sliding_window=4, max_window_layers=28, tie_word_embeddings=True),
    "Qwen3-1.7B": causal(
        "Qwen3ForCausalLM", GROUPED, model_type="qwen3", rope_theta=1000000, head_dim=8, rope_scaling=None,
        sliding_window=None, use_sliding_window=False, max_window_layers=28, tie_word_embeddings=True,
        attention_bias=False),
    "Qwen1.5-MoE-A2.7B": causal(
        "Qwen2MoeForCausalLM", SIZES | {"num_key_value_heads": 4}, model_type="qwen2_moe", rope_theta=1e6,
        sliding_window=4, max_window_layers=21, use_sliding_window=False, decoder_sparse_step=1, moe_intermediate_size=12,
        shared_expert_intermediate_size=20, num_experts=4, num_experts_per_tok=2, norm_topk_prob=False,
        output_router_logits=False, router_aux_loss_coef=0.001),
    "Qwen3-Coder-480B-A35B": causal(
        "Qwen3MoeForCausalLM", GROUPED, model_type="qwen3_moe", rope_theta=10000000, head_dim=8, qkv_bias=False,
        use_qk_norm=True, shared_expert_intermediate_size=0, mlp_only_layers=[], decoder_sparse_step=1,
        moe_intermediate_size=12, num_experts=4, num_experts_per_tok=2, norm_topk_prob=True, max_window_layers=62,
        use_sliding_window=False, sliding_window=None, tie_word_embeddings=False),
    "gemma-2b": causal(
        "GemmaForCausalLM", SIZES | {"num_key_value_heads": 1}, model_type="gemma", head_dim=8, hidden_act="gelu",
        rope_scaling=None, rope_theta=10000.0, rms_norm_eps=1e-6, pad_token_id=0, attention_bias=False),
    "gemma-2-9b-it": causal(
        "Gemma2ForCausalLM", GROUPED, model_type="gemma2", head_dim=8, hidden_act="gelu_pytorch_tanh",
        hidden_activation="gelu_pytorch_tanh", sliding_window=6, sliding_window_size=6, query_pre_attn_scalar=16,
        attn_logit_softcapping=50.0, final_logit_softcapping=30.0, cache_implementation="hybrid", pad_token_id=0,
        rope_theta=10000.0, _attn_implementation="eager"),
    "gemma-3-1b-it": causal(
        "Gemma3ForCausalLM", SIZES | {"num_key_value_heads": 1, "num_hidden_layers": 3}, model_type="gemma3_text",
        head_dim=8, hidden_activation="gelu_pytorch_tanh", sliding_window=6, sliding_window_pattern=3,
        query_pre_attn_scalar=16, attn_logit_softcapping=None, final_logit_softcapping=None, rope_local_base_freq=10000,
        rope_scaling=None, rope_theta=1000000, pad_token_id=0, cache_implementation="hybrid"),
    "Phi-4-mini-instruct": causal(
        "Phi3ForCausalLM", GROUPED | {"hidden_size": 32}, model_type="phi3", attention_bias=False, mlp_bias=False,
        lm_head_bias=False, full_attn_mod=1, interpolate_factor=1, partial_rotary_factor=0.75, rope_theta=10000.0,
        original_max_position_embeddings=16, rope_scaling={"type": "longrope", "short_factor": [1.0, 1.1, 1.3],
                                                           "long_factor": [1.0, 1.7, 2.9]},
        sliding_window=262144, tie_word_embeddings=True, pad_token_id=0, embd_pdrop=0.0, resid_pdrop=0.0),
    "Phi-3-mini-128k-early": causal(
        "Phi3ForCausalLM", SIZES | {"num_key_value_heads": 4}, model_type="phi3", attention_bias=False, rope_theta=10000.0,
        original_max_position_embeddings=16, rope_scaling={"type": "yarn", "short_factor": [1.05, 1.2],
                                                           "long_factor": [1.3, 2.4]},
        sliding_window=262144, tie_word_embeddings=False, pad_token_id=0),
    "granite-3.3-8b": causal(
        "GraniteForCausalLM", GROUPED, model_type="granite", attention_multiplier=0.3, embedding_multiplier=12.0,
        logits_scaling=16.0, residual_multiplier=0.22, rope_theta=10000000.0, rope_scaling=None, tie_word_embeddings=True,
        pad_token_id=0, mlp_bias=False, attention_bias=False),
    "starcoder2-7b": causal(
        "Starcoder2ForCausalLM", GROUPED, model_type="starcoder2", activation_function="gelu",
        hidden_act="gelu_pytorch_tanh", attention_softmax_in_fp32=True, layer_norm_epsilon=1e-5, norm_epsilon=1e-5,
        norm_type="layer_norm", mlp_type="default", scale_attention_softmax_in_fp32=True, scale_attn_weights=True,
        use_bias=True, sliding_window=6, rope_theta=1000000, residual_dropout=0.1, embedding_dropout=0.1,
        attention_dropout=0.1),
    "stablelm-2-12b": causal(
        "StableLmForCausalLM", GROUPED | {"hidden_size": 32}, model_type="stablelm", layer_norm_eps=1e-5, num_heads=4,
        rope_pct=0.25, rotary_scaling_factor=1.0, use_norm_bias=False, use_qkv_bias=False, qk_layernorm=True,
        use_parallel_residual=True, partial_rotary_factor=0.25, rope_theta=10000, tie_word_embeddings=False),
    "OLMo-7B-0424": causal(
        "OlmoForCausalLM", SIZES | {"num_key_value_heads": 4}, model_type="olmo", clip_qkv=8.0, pretraining_tp=1,
        rope_scaling=None, rope_theta=10000.0, pad_token_id=1, tie_word_embeddings=False),
    "OLMo-2-1124-7B": causal(
        "Olmo2ForCausalLM", SIZES | {"num_key_value_heads": 4}, model_type="olmo2", rms_norm_eps=1e-6,
        rope_theta=500000.0, tie_word_embeddings=False),
    "Olmo-3-32B": causal(
        "Olmo3ForCausalLM", GROUPED | {"num_hidden_layers": 4}, model_type="olmo3", torch_dtype=None, dtype="bfloat16",
        rms_norm_eps=1e-6, rope_theta=500000, sliding_window=6,
        layer_types=["sliding_attention"] * 3 + ["full_attention"],
        rope_scaling={"attention_factor": 1.2079441541679836, "beta_fast": 32, "beta_slow": 1, "factor": 8.0,
                      "original_max_position_embeddings": 32, "rope_type": "yarn"}),
    "c4ai-command-r-v01": causal(
        "CohereForCausalLM", SIZES | {"num_key_value_heads": 4}, model_type="cohere", layer_norm_eps=1e-5,
        logit_scale=0.0625, model_max_length=64, pretraining_tp=1, rope_theta=8000000.0, pad_token_id=0,
        use_qk_norm=False),
    "c4ai-command-r7b": causal(
        "Cohere2ForCausalLM", GROUPED | {"num_hidden_layers": 4}, model_type="cohere2", layer_norm_eps=1e-5,
        logit_scale=0.25, layer_switch=4, order_of_interleaved_layers="local_attn_first",
        position_embedding_type="rope_gptj", rotary_pct=1.0, sliding_window=6, use_embedding_sharing=True,
        use_gated_activation=True, use_parallel_block=True, use_parallel_embedding=True, rope_theta=50000,
        pad_token_id=0, head_dim=4, cache_implementation="hybrid"),
    "GLM-4-9B-0414": causal(
        "Glm4ForCausalLM", GROUPED, model_type="glm4", head_dim=8, partial_rotary_factor=0.5, rms_norm_eps=1e-5,
        rope_theta=10000.0, attention_bias=True, pad_token_id=0, eos_token_id=[3, 4], tie_word_embeddings=False),
    "SmolLM3-3B": causal(
        "SmolLM3ForCausalLM", GROUPED | {"num_hidden_layers": 4}, model_type="smollm3", no_rope_layer_interval=4,
        no_rope_layers=[1, 1, 1, 0], pretraining_tp=2, rope_theta=5000000.0, rope_scaling=None, pad_token_id=0,
        use_sliding_window=False, sliding_window=None, tie_word_embeddings=True),
    "falcon-40b": causal(
        "FalconForCausalLM", SIZES, model_type="falcon", apply_residual_connection_post_layernorm=False, n_head=4,
        n_layer=2, new_decoder_architecture=True, num_kv_heads=2, alibi=False, bias=False, multi_query=True,
        parallel_attn=True, layer_norm_epsilon=1e-5, hidden_dropout=0.0, attention_dropout=0.0),
    "falcon-11B": causal(
        "FalconForCausalLM", SIZES, model_type="falcon", activation="gelu", ff_factor=4, ffn_hidden_size=24,
        new_decoder_architecture=True, num_kv_heads=2, num_ln_in_parallel_attn=1, alibi=False, bias=False,
        rope_theta=5000042, layer_norm_epsilon=1e-5, tie_word_embeddings=False),
    "bloom-560m": causal(
        "BloomForCausalLM", {"vocab_size": TOKENS, "n_embed": 16, "n_layer": 2, "num_attention_heads": 4},
        model_type="bloom", torch_dtype=None, seq_length=64, offset_alibi=100, attention_softmax_in_fp32=True,
        bias_dropout_fusion=True, masked_softmax_fusion=True, skip_bias_add=True, skip_bias_add_qkv=False, n_inner=None,
        pretraining_tp=1, apply_residual_connection_post_layernorm=False, unk_token_id=0),
    "gpt2-medium": causal(
        "GPT2LMHeadModel", SHORT, **SUMMARY, model_type="gpt2", torch_dtype=None, n_ctx=64, n_special=0,
        predict_special_tokens=True, activation_function="gelu_new", attn_pdrop=0.1, embd_pdrop=0.1, resid_pdrop=0.1,
        task_specific_params={"text-generation": {"do_sample": True, "max_length": 50}}),
    "mistral-gpt2-small": causal(
        "GPT2LMHeadModel", SHORT, **SUMMARY, model_type="gpt2", scale_attn_by_inverse_layer_idx=True,
        reorder_and_upcast_attn=True, activation_function="gelu_new", _num_labels=1),
    "gpt-j-6b": causal(
        "GPTJForCausalLM", SHORT, **SUMMARY, model_type="gptj", torch_dtype=None, rotary=True, rotary_dim=4,
        scale_attn_weights=True, activation_function="gelu_new", n_inner=None, gradient_checkpointing=False),
    "gpt-neox-20b": causal(
        "GPTNeoXForCausalLM", SIZES, model_type="gpt_neox", attention_probs_dropout_prob=0, hidden_dropout_prob=0,
        hidden_act="gelu_fast", rotary_emb_base=10000, rotary_pct=0.5, layer_norm_eps=1e-5, tie_word_embeddings=False,
        custom_pipelines={}),
    "opt-350m": causal(
        "OPTForCausalLM", {"vocab_size": TOKENS, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4,
                           "max_position_embeddings": 32}, model_type="opt", activation_dropout=0.0,
        activation_function="relu", do_layer_norm_before=False, dropout=0.1, ffn_dim=24, layerdrop=0.0,
        word_embed_proj_dim=8, pad_token_id=1, prefix="</s>", init_std=0.02),
    "gpt-oss-20b": causal(
        "GptOssForCausalLM", GROUPED, model_type="gpt_oss", head_dim=8, experts_per_token=2, num_experts_per_tok=2,
        num_local_experts=4, initial_context_length=16, swiglu_limit=7.0, sliding_window=6, rope_theta=150000,
        layer_types=["sliding_attention", "full_attention"], attention_bias=True, output_router_logits=False,
        router_aux_loss_coef=0.9, pad_token_id=0, rms_norm_eps=1e-5,
        rope_scaling={"beta_fast": 32.0, "beta_slow": 1.0, "factor": 4.0, "original_max_position_embeddings": 16,
                      "rope_type": "yarn", "truncate": False}),
    "DeepSeek-V3": causal(
        "DeepseekV3ForCausalLM", SIZES | {"num_key_value_heads": 4}, model_type="deepseek_v3", aux_loss_alpha=0.001,
        ep_size=1, first_k_dense_replace=1, kv_lora_rank=8, q_lora_rank=12, qk_nope_head_dim=4, qk_rope_head_dim=4,
        v_head_dim=4, moe_intermediate_size=12, moe_layer_freq=1, n_group=2, topk_group=1, n_routed_experts=8,
        n_shared_experts=1, num_experts_per_tok=2, norm_topk_prob=True, routed_scaling_factor=2.5, scoring_func="sigmoid",
        seq_aux=True, topk_method="noaux_tc", num_nextn_predict_layers=1, rope_theta=10000, auto_map={},
        rope_scaling={"beta_fast": 32, "beta_slow": 1, "factor": 2, "mscale": 1.0, "mscale_all_dim": 1.0,
                      "original_max_position_embeddings": 32, "type": "yarn"}, tie_word_embeddings=False),
    "bert-base-uncased": {
        "architectures": ["BertForMaskedLM"], "model_type": "bert", "attention_probs_dropout_prob": 0.1,
        "gradient_checkpointing": False, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "initializer_range": 0.02,
        "layer_norm_eps": 1e-12, "pad_token_id": 0, "position_embedding_type": "absolute", "type_vocab_size": 2,
        "directionality": "bidi", "pooler_type": "first_token_transform", "num_hidden_groups": 1} | GENERAL | SIZES,
    "roberta-large-mnli": {
        "architectures": ["RobertaForSequenceClassification"], "model_type": "roberta", "_num_labels": 3,
        "attention_probs_dropout_prob": 0.1, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "layer_norm_eps": 1e-5,
        "pad_token_id": 1, "type_vocab_size": 1, "id2label": {"0": "CONTRADICTION", "1": "NEUTRAL", "2": "ENTAILMENT"},
        "label2id": {"CONTRADICTION": 0, "NEUTRAL": 1, "ENTAILMENT": 2}} | SIZES | {"eos_token_id": 2, "bos_token_id": 0},
    "vit-base-patch16-224": {
        "architectures": ["ViTForImageClassification"], "model_type": "vit", "attention_probs_dropout_prob": 0.0,
        "encoder_stride": 16, "hidden_act": "gelu", "hidden_dropout_prob": 0.0, "hidden_size": 16, "image_size": 16,
        "patch_size": 8, "num_channels": 3, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 16,
        "layer_norm_eps": 1e-12, "qkv_bias": True, "problem_type": "single_label_classification",
        "id2label": {"0": "a", "1": "b", "2": "c"}, "label2id": {"a": 0, "b": 1, "c": 2}, "torch_dtype": "float32"},
    "t5-small": {
        "architectures": ["T5WithLMHeadModel"], "model_type": "t5", "d_ff": 24, "d_kv": 4, "d_model": 16,
        "decoder_start_token_id": 0, "dropout_rate": 0.1, "eos_token_id": 1, "initializer_factor": 1.0,
        "is_encoder_decoder": True, "layer_norm_epsilon": 1e-6, "n_positions": 32, "num_heads": 4, "num_layers": 2,
        "output_past": True, "pad_token_id": 0, "relative_attention_num_buckets": 8, "vocab_size": TOKENS,
        "task_specific_params": {"summarization": {"max_length": 200, "prefix": "summarize: "}}},
    "whisper-base": {
        "architectures": ["WhisperForConditionalGeneration"], "model_type": "whisper", "activation_dropout": 0.0,
        "activation_function": "gelu", "attention_dropout": 0.0, "begin_suppress_tokens": [3, 4], "bos_token_id": 1,
        "d_model": 16, "decoder_attention_heads": 4, "decoder_ffn_dim": 24, "decoder_layerdrop": 0.0, "decoder_layers": 2,
        "decoder_start_token_id": 5, "dropout": 0.0, "encoder_attention_heads": 4, "encoder_ffn_dim": 24,
        "encoder_layerdrop": 0.0, "encoder_layers": 2, "eos_token_id": 2, "forced_decoder_ids": [[1, 6], [2, 7]],
        "init_std": 0.02, "is_encoder_decoder": True, "max_length": 16, "max_source_positions": 8,
        "max_target_positions": 16, "num_hidden_layers": 2, "num_mel_bins": 4, "pad_token_id": 2,
        "scale_embedding": False, "suppress_tokens": [1, 2], "torch_dtype": "float32", "vocab_size": TOKENS},
    "Kimi-K2-Instruct": causal(
        "DeepseekV3ForCausalLM", SIZES | {"num_key_value_heads": 4}, model_type="kimi_k2",
        auto_map={"AutoConfig": "configuration_deepseek.DeepseekV3Config"}, attention_bias=False, attention_dropout=0.0,
        aux_loss_alpha=0.001, ep_size=1, first_k_dense_replace=1, hidden_act="silu", initializer_range=0.02, kv_lora_rank=8,
        moe_intermediate_size=12, moe_layer_freq=1, n_group=1, n_routed_experts=4, n_shared_experts=1, norm_topk_prob=True,
        num_experts_per_tok=2, num_nextn_predict_layers=0, pretraining_tp=1, q_lora_rank=12, qk_nope_head_dim=8,
        qk_rope_head_dim=4, rms_norm_eps=1e-6, rope_theta=50000.0, routed_scaling_factor=2.827, scoring_func="sigmoid",
        rope_scaling={"beta_fast": 1.0, "beta_slow": 1.0, "factor": 4.0, "mscale": 1.0, "mscale_all_dim": 1.0,
                      "original_max_position_embeddings": 8, "type": "yarn"},
        seq_aux=True, tie_word_embeddings=False, topk_group=1, topk_method="noaux_tc", v_head_dim=8),
    "OLMoE-1B-7B-0924": causal(
        "OlmoeForCausalLM", SIZES | {"num_key_value_heads": 4}, model_type="olmoe", attention_bias=False, clip_qkv=None,
        hidden_act="silu", norm_topk_prob=False, num_experts=4, num_experts_per_tok=2, output_router_logits=False,
        pad_token_id=1, rms_norm_eps=1e-5, rope_scaling=None, rope_theta=10000.0, router_aux_loss_coef=0.01,
        tie_word_embeddings=False),
    "phi-2": causal(
        "PhiForCausalLM", SIZES, model_type="phi", attention_dropout=0.0, embd_pdrop=0.0, hidden_act="gelu_new",
        layer_norm_eps=1e-5, num_key_value_heads=4, partial_rotary_factor=0.5, qk_layernorm=False, resid_pdrop=0.1,
        rope_scaling=None, rope_theta=10000.0, tie_word_embeddings=False),
    "phi-norms": causal(
        "PhiForCausalLM", GROUPED, model_type="phi", layer_norm_eps=1e-5, partial_rotary_factor=0.5, qk_layernorm=True),
    "GLM-4.5-Air": causal(
        "Glm4MoeForCausalLM", GROUPED, model_type="glm4_moe", attention_bias=True, attention_dropout=0.0,
        first_k_dense_replace=1, head_dim=8, hidden_act="silu", moe_intermediate_size=12, n_group=1, n_routed_experts=4,
        n_shared_experts=1, norm_topk_prob=True, num_experts_per_tok=2, num_nextn_predict_layers=1, pad_token_id=3,
        partial_rotary_factor=0.5, rms_norm_eps=1e-5, rope_scaling=None, rope_theta=1000000, routed_scaling_factor=1.0,
        tie_word_embeddings=False, topk_group=1, use_qk_norm=False),
    "MiniMax-M2": causal(
        "MiniMaxM2ForCausalLM", GROUPED, model_type="minimax_m2", attention_dropout=0.0, attn_type_list=[1, 1],
        head_dim=8, hidden_act="silu", layernorm_full_attention_beta=1.0, layernorm_linear_attention_beta=1.0,
        layernorm_mlp_beta=1.0, mtp_transformer_layers=1, num_experts_per_tok=2, num_local_experts=4, num_mtp_modules=3,
        output_router_logits=False, qk_norm_type="per_layer", rms_norm_eps=1e-6, rope_theta=5000000, rotary_dim=4,
        router_aux_loss_coef=0.001, router_jitter_noise=0.0, scoring_func="sigmoid", shared_intermediate_size=0,
        sliding_window=None, tie_word_embeddings=False, use_mtp=True, use_qk_norm=True, use_routing_bias=True),
    "DeepSeek-V2": causal(
        "DeepseekV2ForCausalLM", SIZES | {"num_key_value_heads": 4}, model_type="deepseek_v2", attention_bias=False,
        aux_loss_alpha=0.001, ep_size=1, first_k_dense_replace=1, hidden_act="silu", kv_lora_rank=8,
        moe_intermediate_size=12, moe_layer_freq=1, n_group=4, n_routed_experts=8, n_shared_experts=2, norm_topk_prob=False,
        num_experts_per_tok=2, pretraining_tp=1, q_lora_rank=12, qk_nope_head_dim=8, qk_rope_head_dim=4, rms_norm_eps=1e-6,
        rope_scaling={"beta_fast": 32, "beta_slow": 1, "factor": 4, "mscale": 0.707, "mscale_all_dim": 0.707,
                      "original_max_position_embeddings": 8, "type": "yarn"},
        rope_theta=10000, routed_scaling_factor=16.0, scoring_func="softmax", seq_aux=True, tie_word_embeddings=False,
        topk_group=2, topk_method="group_limited_greedy", v_head_dim=8),
    "granite-3.1-1b-a400m": causal(
        "GraniteMoeForCausalLM", GROUPED, model_type="granitemoe", attention_bias=False, attention_dropout=0.1,
        attention_multiplier=0.015625, embedding_multiplier=12.0, hidden_act="silu", logits_scaling=6.0,
        num_experts_per_tok=2, num_local_experts=4, output_router_logits=False, pad_token_id=0, residual_multiplier=0.22,
        rms_norm_eps=1e-6, rope_scaling=None, rope_theta=1500000.0, router_aux_loss_coef=0.0, tie_word_embeddings=True),
    "EXAONE-4.0-32B": causal(
        "Exaone4ForCausalLM", GROUPED | {"num_hidden_layers": 4}, model_type="exaone4", attention_dropout=0.0, head_dim=8,
        hidden_act="silu", layer_types=["sliding_attention"] * 3 + ["full_attention"], pad_token_id=0,
        reorder_qk_norm=True, rms_norm_eps=1e-5, rope_scaling={
            "factor": 4.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 32,
            "rope_type": "llama3"},
        rope_theta=1000000, sliding_window=6, sliding_window_pattern="LLLG", tie_word_embeddings=False),
    "EXAONE-4.0-1.2B": causal(
        "Exaone4ForCausalLM", GROUPED, model_type="exaone4", head_dim=8, layer_types=["full_attention"] * 2,
        pad_token_id=0, rms_norm_eps=1e-5, rope_theta=1000000, sliding_window=None, sliding_window_pattern=None,
        tie_word_embeddings=True),
    "ERNIE-4.5-0.3B-PT": causal(
        "Ernie4_5ForCausalLM", GROUPED, model_type="ernie4_5", head_dim=8, hidden_act="silu", pad_token_id=0,
        rms_norm_eps=1e-5, rope_scaling=None, rope_theta=500000.0, tie_word_embeddings=True, use_bias=False),
    "gpt-neo-125m": causal(
        "GPTNeoForCausalLM", {"vocab_size": TOKENS, "hidden_size": 16, "num_layers": 2, "num_heads": 4,
                              "max_position_embeddings": 32, "bos_token_id": 1, "eos_token_id": 2},
        model_type="gpt_neo", activation_function="gelu_new", attention_dropout=0, attention_layers=["global", "local"],
        attention_types=[[["global", "local"], 1]], embed_dropout=0, gradient_checkpointing=False, intermediate_size=None,
        layer_norm_epsilon=1e-5, resid_dropout=0, window_size=6, **SUMMARY),
    "codegen-350M-mono": causal(
        "CodeGenForCausalLM", SHORT | {"n_head": 8, "n_embd": 32}, model_type="codegen", activation_function="gelu_new",
        attn_pdrop=0.0, embd_pdrop=0.0, gradient_checkpointing=False, layer_norm_epsilon=1e-5, n_ctx=32, n_inner=None,
        resid_pdrop=0.0, rotary_dim=2, scale_attn_weights=True, tie_word_embeddings=False, **SUMMARY),
    "Seed-OSS-36B": causal(
        "SeedOssForCausalLM", GROUPED, model_type="seed_oss", attention_bias=True, attention_dropout=0.1,
        attention_out_bias=False, head_dim=8, hidden_act="silu", mlp_bias=False, pad_token_id=1, residual_dropout=0.1,
        rms_norm_eps=1e-6, rope_scaling={"rope_type": "default"}, rope_theta=10000000.0, tie_word_embeddings=False),
    "Minitron-4B-Base": causal(
        "NemotronForCausalLM", GROUPED, model_type="nemotron", attention_bias=False, attention_dropout=0.0, head_dim=8,
        hidden_act="relu2", mlp_bias=False, norm_eps=1e-5, partial_rotary_factor=0.5, rope_theta=10000,
        tie_word_embeddings=False),
    "helium-1-2b": causal(
        "HeliumForCausalLM", GROUPED, model_type="helium", attention_bias=False, attention_dropout=0.0, head_dim=4,
        hidden_act="silu", mlp_bias=False, pad_token_id=3, rms_norm_eps=1e-8, rope_theta=20000.0,
        tie_word_embeddings=False),
    "dots.llm1": causal(
        "Dots1ForCausalLM", GROUPED | {"num_hidden_layers": 3}, model_type="dots1", attention_bias=False,
        first_k_dense_replace=1, hidden_act="silu", max_window_layers=2, moe_intermediate_size=12, moe_layer_freq=1,
        n_group=1, n_routed_experts=4, n_shared_experts=2, norm_topk_prob=True, num_experts_per_tok=2, rms_norm_eps=1e-5,
        rope_scaling=None, rope_theta=10000000, routed_scaling_factor=2.5, sliding_window=5, tie_word_embeddings=False,
        topk_group=1),
    "Hunyuan-7B": causal(
        "HunYuanDenseV1ForCausalLM", GROUPED, model_type="hunyuan_v1_dense", attention_bias=False, attention_dropout=0.1,
        head_dim=8, hidden_act="silu", pad_token_id=0, rms_norm_eps=1e-5, rope_theta=10000.0,
        rope_scaling={"alpha": 1000.0, "beta_fast": 32, "beta_slow": 1, "factor": 1.0, "mscale": 1.0,
                      "mscale_all_dim": 1.0, "type": "dynamic"},
        tie_word_embeddings=True, use_qk_norm=True),
    "starcoder": causal(
        "GPTBigCodeForCausalLM", SHORT, model_type="gpt_bigcode", activation_function="gelu", attn_pdrop=0.1,
        attention_softmax_in_fp32=True, embd_pdrop=0.1, layer_norm_epsilon=1e-5, multi_query=True, n_inner=64,
        resid_pdrop=0.1, scale_attention_softmax_in_fp32=True, scale_attn_weights=True, **SUMMARY),
    "bigcode-heads": causal(
        "GPTBigCodeForCausalLM", SHORT, model_type="gpt_bigcode", multi_query=False, scale_attn_weights=False),
}
CLASSES = {"T5WithLMHeadModel": "T5ForConditionalGeneration"}
MODEL_TYPES = {"kimi_k2": "deepseek_v3"}  # transformers has no such model_type, and this one's code


def keys_for_transformers(keys):
    return keys | {"model_type": MODEL_TYPES.get(keys["model_type"], keys["model_type"])}


def inputs_of(keys, draw):
    ids = torch.randint(8, TOKENS, (1, 10), generator=draw)
    if keys["model_type"] == "vit":
        return {"pixel_values": torch.randn(1, 3, 16, 16, generator=draw), "labels": torch.tensor([1])}
    if keys["model_type"] == "whisper":
        sound = torch.randn(1, 4, 16, generator=draw)
        return {"input_features": sound, "decoder_input_ids": ids, "labels": ids.roll(-1, 1)}
    if keys["model_type"] == "t5":
        target = ids[:, :7].contiguous()
        return {"input_ids": ids, "decoder_input_ids": target, "labels": target.roll(-1, 1)}
    if keys["architectures"][0].endswith("ForSequenceClassification"):
        return {"input_ids": ids, "labels": torch.tensor([1])}
    return {"input_ids": ids, "labels": ids.clone()}


def rounded(value, draw, name):
    """Norms and biases move, so that each of them shows."""
    if not value.is_floating_point():
        return value
    drawn = 0.3 * torch.randn(value.shape, generator=draw, dtype=torch.float64)
    if "norm" in name.lower() or "ln_" in name or "layernorm" in name:
        drawn = 0.3 * drawn + (value.double() if value.numel() and value.double().abs().max() > 0 else 0)
    return drawn.to(torch.bfloat16).to(torch.float64)


def case_of(name, keys, seed):
    draw = torch.Generator().manual_seed(seed)
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "config.json").write_text(json.dumps(keys_for_transformers(keys)))
        config = transformers.AutoConfig.from_pretrained(folder)
    architecture = keys["architectures"][0]
    cls = getattr(transformers, CLASSES.get(architecture, architecture))
    config._attn_implementation = config._experts_implementation = "eager"
    if getattr(config, "reorder_and_upcast_attn", False):
        config.reorder_and_upcast_attn = False  # the order of operations alone, and not in float64
    model = cls._from_config(config, dtype=torch.float64) if hasattr(cls, "_from_config") else cls(config).double()
    model = model.double().eval()
    positions = {key for key in model.state_dict() if key.endswith("encoder.embed_positions.weight")}
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if key not in positions:
                parameter.copy_(rounded(parameter, draw, key))
            else:
                parameter.copy_(parameter.to(torch.bfloat16).double())
        for key, buffer in model.named_buffers():
            if key.endswith("e_score_correction_bias"):
                buffer.copy_(rounded(buffer, draw, key))
        inputs = inputs_of(keys, draw)
        called = {key: value.double() if value.is_floating_point() else value for key, value in inputs.items()
                  if key != "labels"}
        logits = model(**called).logits
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        from safetensors.torch import load_file
        weights = load_file(pathlib.Path(folder) / "model.safetensors")
    tensors = {f"{name}/weights/{key}": value.to(torch.bfloat16).contiguous() for key, value in weights.items()}
    tensors |= {f"{name}/inputs/{key}": (value.float() if value.is_floating_point() else value.to(torch.int32)).contiguous()
                for key, value in inputs.items()}
    tensors[f"{name}/expected/logits"] = logits.float().contiguous()
    return tensors


def main():
    torch.set_num_threads(1)
    here = pathlib.Path(__file__).parent
    tensors = {}
    for seed, (name, keys) in enumerate(FACTS.items()):
        tensors |= case_of(name, keys, seed)
    save_file(tensors, here / "tensors.safetensors")
    lines = [f"{json.dumps(name)}: {json.dumps(keys)}" for name, keys in FACTS.items()]
    (here / "cases.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


main()
