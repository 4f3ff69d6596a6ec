// BART (Lewis et al., arXiv 1910.13461) and Pegasus (Zhang et al., arXiv 1912.08777) for one device, built from layers
// that a policy can shard: an encoder and a decoder. BART's positions are trained, and its norms follow the blocks.
// Pegasus has fixed positions, and norms before the blocks and after each stack. Parameter names are Hugging Face's
// without the "model." prefix: shared, encoder.*, decoder.*; lm_head, and final_logits_bias, which is not trained.
#pragma once

#include <optional>
#include <vector>

#include <torch/nn/modules/container/modulelist.h>

#include "gantry/models/described/encoder_configs.h"
#include "gantry/models/stack_attention.h"
#include "gantry/nn/embedding.h"
#include "gantry/nn/norms.h"
#include "gantry/nn/stage_context.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry::models {

// A layer of the encoder, with the parts "attention" and "mlp", or of the decoder, with "cross" between them.
class BartLayerImpl : public torch::nn::Module {
 public:
  BartLayerImpl(const BartConfig& config, bool is_decoder);
  // Returns the parts for a state with "hidden" [B, S, H] and, in a decoder, "encoded" [B, T, H]. `self`: options of
  // the attention to the layer's own tokens. `cross`: to the encoder's tokens.
  LayerParts parts(const nn::AttentionOptions& self, const nn::AttentionOptions& cross);

 private:
  template <class Block>
  torch::Tensor residual(nn::LayerNorm& norm, const torch::Tensor& hidden, const Block& block) const;
  torch::Tensor mlp(const torch::Tensor& input);

  std::string activation_;
  bool norms_before_;
  std::optional<StackAttention> self_, cross_;
  nn::LayerNorm self_norm_{nullptr}, cross_norm_{nullptr}, mlp_norm_{nullptr};
  nn::Linear up_{nullptr}, down_{nullptr};
  nn::Dropout inner_dropout_{nullptr}, mlp_dropout_{nullptr};
};
TORCH_MODULE(BartLayer);

// The encoder or the decoder, without the shared embedding.
class BartStackImpl : public torch::nn::Module {
 public:
  BartStackImpl(const BartConfig& config, bool is_decoder);
  // `words`: embeddings [B, S, H]. `places`: int64, [S] or [B, S].
  torch::Tensor embed(const torch::Tensor& words, const torch::Tensor& places);
  // Returns the output of the stack for that of its last layer.
  torch::Tensor finish(const torch::Tensor& hidden) { return last_norm_ ? last_norm_(hidden) : hidden; }
  torch::nn::ModuleList layers;

 private:
  std::int64_t first_position_;
  nn::Embedding positions_{nullptr};
  nn::LayerNorm norm_{nullptr}, last_norm_{nullptr};  // null if the model has none
  nn::Dropout dropout_{nullptr};
};
TORCH_MODULE(BartStack);

class BartImpl : public torch::nn::Module {
 public:
  explicit BartImpl(const BartConfig& config);

  // Runs the full model: {input_ids int64 [B, T]; optional: attention_mask [B, T], decoder_attention_mask [B, S];
  // decoder_input_ids [B, S], or labels that these follow from} -> {logits [B, S, V]}.
  TensorDict forward(const TensorDict& inputs);
  // Runs one stage. Stages exchange {hidden} of the encoder, or {hidden, encoded} of the decoder. If caches know the
  // encoder's output, there are no input_ids, and stages before the decoder exchange {hidden} without tokens. Throws
  // InputError for positions and documents, and for more tokens than positions.
  TensorDict stage_forward(const StageContext& stage, TensorDict input);

  const BartConfig config;

 private:
  torch::Tensor embed(BartStack& stack, const torch::Tensor& ids, const torch::Tensor& places);
  void check_length(const char* entry, std::int64_t tokens) const;
  TensorDict begin(const StageContext& stage, const TensorDict& input);
  TensorDict run(const StageContext& stage, TensorDict state, int list);
  torch::Tensor logits(const torch::Tensor& hidden);

  nn::Embedding shared_{nullptr};
  BartStack encoder_{nullptr}, decoder_{nullptr};
  nn::Linear head_{nullptr};
  torch::Tensor logits_bias_;  // [1, V]
};
TORCH_MODULE(Bart);

}  // namespace gantry::models
