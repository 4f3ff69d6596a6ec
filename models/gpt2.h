// GPT-2 for one device, on layers that a policy can shard. Parameter names: wte, wpe, h.N.{ln_1, attn.qkv, attn.proj,
// ln_2, mlp.up, mlp.down}, ln_f, lm_head (without bias; tied to wte or not).
#pragma once

#include <torch/nn/modules/container/modulelist.h>

#include "gantry/nn/attention.h"
#include "gantry/nn/embedding.h"
#include "gantry/nn/norms.h"
#include "gantry/nn/stage_context.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry::models {

struct Gpt2Config {  // Hugging Face's keys
  std::int64_t vocab_size = 50257;
  std::int64_t n_positions = 1024;
  std::int64_t n_embd = 768;
  std::int64_t n_layer = 12;
  std::int64_t n_head = 12;
  std::int64_t n_inner = 0;                      // 0: 4 * n_embd
  std::string activation_function = "gelu_new";  // gelu_new | gelu | relu
  double resid_pdrop = 0.1;
  double embd_pdrop = 0.1;
  double attn_pdrop = 0.1;
  double layer_norm_epsilon = 1e-5;
  double initializer_range = 0.02;
  bool tie_word_embeddings = true;
};

class Gpt2AttentionImpl : public torch::nn::Module {
 public:
  explicit Gpt2AttentionImpl(const Gpt2Config& config);
  // [B, S, H] -> [B, S, H]
  torch::Tensor forward(const torch::Tensor& hidden, const nn::AttentionOptions& attention);
  nn::Linear qkv{nullptr}, proj{nullptr};
  nn::Dropout attn_dropout{nullptr}, resid_dropout{nullptr};

 private:
  std::int64_t heads_, head_size_;
};
TORCH_MODULE(Gpt2Attention);

class Gpt2MlpImpl : public torch::nn::Module {
 public:
  explicit Gpt2MlpImpl(const Gpt2Config& config);
  torch::Tensor forward(const torch::Tensor& hidden);
  nn::Linear up{nullptr}, down{nullptr};
  nn::Dropout dropout{nullptr};

 private:
  std::string activation_;
};
TORCH_MODULE(Gpt2Mlp);

class Gpt2BlockImpl : public torch::nn::Module {
 public:
  explicit Gpt2BlockImpl(const Gpt2Config& config);
  // "attention" and "mlp": [B, S, H] -> [B, S, H].
  LayerParts parts(const nn::AttentionOptions& attention);
  nn::LayerNorm ln_1{nullptr}, ln_2{nullptr};
  Gpt2Attention attn{nullptr};
  Gpt2Mlp mlp{nullptr};
};
TORCH_MODULE(Gpt2Block);

class Gpt2Impl : public torch::nn::Module {
 public:
  explicit Gpt2Impl(const Gpt2Config& config);

  // The whole model: {input_ids int64 [B, S]; attention_mask, position_ids, document_ids [B, S] or absent} -> {logits
  // [B, S, V]}.
  TensorDict forward(const TensorDict& inputs);
  // The same of one stage; stages exchange {hidden [B, S, H]}. InputError if S > n_positions.
  TensorDict stage_forward(const StageContext& stage, TensorDict input);

  const Gpt2Config config;
  nn::Embedding wte{nullptr}, wpe{nullptr};
  nn::Dropout drop{nullptr};
  torch::nn::ModuleList h;
  nn::LayerNorm ln_f{nullptr};
  nn::Linear lm_head{nullptr};

 private:
  // [B, S] -> [B, S, H], at `positions` int64 [B, S] or at 0, 1, 2, ...
  torch::Tensor embed(const torch::Tensor& input_ids, const torch::Tensor& positions);
};
TORCH_MODULE(Gpt2);

}  // namespace gantry::models
