// Llama for one device, on layers that a policy can shard. Parameter names are Hugging Face's without their "model."
// prefix: embed_tokens, layers.N.{input_layernorm, self_attn.{q,k,v,o}_proj, post_attention_layernorm,
// mlp.{gate,up,down}_proj}, norm, lm_head (tied to embed_tokens or not).
#pragma once

#include <optional>

#include <torch/nn/modules/container/modulelist.h>

#include "gantry/nn/attention.h"
#include "gantry/nn/embedding.h"
#include "gantry/nn/norms.h"
#include "gantry/nn/rotary.h"
#include "gantry/nn/stage_context.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry::models {

struct LlamaConfig {  // Hugging Face's keys
  std::int64_t vocab_size = 32000;
  std::int64_t hidden_size = 4096;
  std::int64_t intermediate_size = 11008;
  std::int64_t num_hidden_layers = 32;
  std::int64_t num_attention_heads = 32;
  std::int64_t num_key_value_heads = 32;
  std::int64_t head_dim = 128;
  std::int64_t max_position_embeddings = 2048;
  std::string hidden_act = "silu";
  double rms_norm_eps = 1e-6;
  double attention_dropout = 0;
  double initializer_range = 0.02;
  std::optional<std::int64_t> pad_token_id;  // its row of the embedding gets no gradient from look-ups
  bool attention_bias = false;
  bool mlp_bias = false;
  bool tie_word_embeddings = false;
  nn::RotaryOptions rotary;
};

class LlamaAttentionImpl : public torch::nn::Module {
 public:
  explicit LlamaAttentionImpl(const LlamaConfig& config);
  // [B, S, H] -> [B, S, H]; positions int64 [B, S], or undefined: 0, 1, 2, ...
  torch::Tensor forward(const torch::Tensor& hidden, const nn::AttentionOptions& attention,
                        const torch::Tensor& positions);
  nn::Linear q_proj{nullptr}, k_proj{nullptr}, v_proj{nullptr}, o_proj{nullptr};
  nn::Dropout dropout{nullptr};

 private:
  std::int64_t heads_, key_heads_, head_size_;
  nn::Rotary rotary_;
};
TORCH_MODULE(LlamaAttention);

class LlamaMlpImpl : public torch::nn::Module {
 public:
  explicit LlamaMlpImpl(const LlamaConfig& config);
  torch::Tensor forward(const torch::Tensor& hidden);
  nn::Linear gate_proj{nullptr}, up_proj{nullptr}, down_proj{nullptr};

 private:
  std::string activation_;
};
TORCH_MODULE(LlamaMlp);

class LlamaLayerImpl : public torch::nn::Module {
 public:
  explicit LlamaLayerImpl(const LlamaConfig& config);
  // "attention" and "mlp": [B, S, H] -> [B, S, H].
  LayerParts parts(const nn::AttentionOptions& attention, const torch::Tensor& positions);
  nn::RmsNorm input_layernorm{nullptr}, post_attention_layernorm{nullptr};
  LlamaAttention self_attn{nullptr};
  LlamaMlp mlp{nullptr};
};
TORCH_MODULE(LlamaLayer);

class LlamaImpl : public torch::nn::Module {
 public:
  explicit LlamaImpl(const LlamaConfig& config);

  // The whole model: {input_ids int64 [B, S]; attention_mask, position_ids, document_ids [B, S] or absent} -> {logits
  // [B, S, V]}.
  TensorDict forward(const TensorDict& inputs);
  // The same of one stage; stages exchange {hidden [B, S, H]}. InputError if S is too long.
  TensorDict stage_forward(const StageContext& stage, TensorDict input);

  const LlamaConfig config;
  nn::Embedding embed_tokens{nullptr};
  torch::nn::ModuleList layers;
  nn::RmsNorm norm{nullptr};
  nn::Linear lm_head{nullptr};

 private:
  torch::Tensor embed(const torch::Tensor& input_ids);  // [B, S] -> [B, S, H]
};
TORCH_MODULE(Llama);

}  // namespace gantry::models
