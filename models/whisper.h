// Whisper (Radford et al., arXiv 2212.04356) for one device, on layers that a policy can shard: two convolutions and an
// encoder of sound, and a decoder, which are two lists of layers. Parameter names are Hugging Face's without "model.".
#pragma once

#include <optional>

#include <torch/nn/modules/container/modulelist.h>

#include "gantry/models/described/encoder_configs.h"
#include "gantry/models/stack_attention.h"
#include "gantry/nn/attention.h"
#include "gantry/nn/embedding.h"
#include "gantry/nn/norms.h"
#include "gantry/nn/prepare_input.h"
#include "gantry/nn/stage_context.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry::models {

// One of the two convolutions over time. Parameters weight [out, in, 3] and bias [out].
class WhisperConvolutionImpl : public torch::nn::Module {
 public:
  WhisperConvolutionImpl(std::int64_t in, std::int64_t out, std::int64_t stride);
  torch::Tensor forward(const torch::Tensor& input) const;  // [B, in, T] -> [B, out, (T + 1) / stride]
  torch::Tensor weight, bias;

 private:
  std::int64_t stride_;
};
TORCH_MODULE(WhisperConvolution);

// The sizes of a layer of either stack.
struct WhisperLayerSizes {
  std::int64_t heads, width;
  bool is_decoder;
};

// A layer of the encoder, in parts "attention" and "mlp", or of the decoder, with "cross" between them.
class WhisperLayerImpl : public torch::nn::Module {
 public:
  WhisperLayerImpl(const WhisperConfig& config, const WhisperLayerSizes& sizes);
  // Returns the parts for a state with "hidden" [B, S, H] and, in a decoder, "encoded" [B, T, H]. `self`:
  // options of the attention to the layer's own tokens. `cross`: to the encoder's tokens.
  LayerParts parts(const nn::AttentionOptions& self, const nn::AttentionOptions& cross);

 private:
  torch::Tensor mlp(const torch::Tensor& input);

  std::string activation_;
  nn::LayerNorm before_self_{nullptr}, before_cross_{nullptr}, before_mlp_{nullptr};
  std::optional<StackAttention> self_, cross_;
  nn::Linear up_{nullptr}, down_{nullptr};
  nn::Dropout inner_dropout_{nullptr}, mlp_dropout_{nullptr};
};
TORCH_MODULE(WhisperLayer);

class WhisperImpl : public torch::nn::Module {
 public:
  explicit WhisperImpl(const WhisperConfig& config);

  // Runs the full model: {input_features real [B, mel bins, 2 max_source_positions]; optional:
  // decoder_attention_mask [B, S]; decoder_input_ids [B, S], or labels that these follow from} -> {logits
  // [B, S, V]}.
  TensorDict forward(const TensorDict& inputs);
  // Runs one stage. Stages exchange {hidden} of the encoder, or {hidden, encoded} of the decoder. Throws
  // InputError for sound of another length, and for more tokens than positions.
  TensorDict stage_forward(const StageContext& stage, TensorDict input);

  const WhisperConfig config;

 private:
  void make_encoder();
  void make_decoder();
  void initialise();
  torch::Tensor embed_sound(const StageContext& stage, const torch::Tensor& features);
  TensorDict begin(const StageContext& stage, const TensorDict& input);
  torch::Tensor embed_tokens(const TensorDict& batch, const nn::TokenContext& target);
  TensorDict decode(const StageContext& stage, TensorDict state, const nn::TokenContext& target);

  WhisperConvolution first_{nullptr}, second_{nullptr};
  torch::Tensor sound_positions_;    // [max_source_positions, H], not trained
  nn::PrepareInput enter_{nullptr};  // to parts of the sequence
  nn::Embedding tokens_{nullptr}, positions_{nullptr};
  nn::Dropout sound_dropout_{nullptr}, token_dropout_{nullptr};
  torch::nn::ModuleList encoder_layers_, decoder_layers_;
  nn::LayerNorm encoder_norm_{nullptr}, decoder_norm_{nullptr};
  nn::Linear head_{nullptr};
};
TORCH_MODULE(Whisper);

}  // namespace gantry::models
