// Attention with biases in a layer of an encoder-decoder model (Whisper, BART), to its own tokens or to the encoder's.
#pragma once

#include <string>

#include "gantry/nn/attention.h"

namespace gantry::models {

struct StackAttentionSizes {
  std::int64_t heads, width;
  bool key_bias;           // false: the projection of keys has no bias
  double weights_dropout;  // probability for attention weights
  double output_dropout;   // probability for the output
};

class StackAttention {
 public:
  // Registers {q,k,v,out}_proj below `path` of the layer.
  StackAttention(torch::nn::Module& layer, const std::string& path, const StackAttentionSizes& sizes);
  // `read`: the tokens with the keys and values; undefined if the cache has these. [B, S, H], [B, T, H] ->
  // [B, S, H].
  torch::Tensor operator()(const torch::Tensor& hidden, const torch::Tensor& read, const nn::AttentionOptions& options);

 private:
  std::int64_t heads_, size_;
  nn::Linear query_{nullptr}, key_{nullptr}, value_{nullptr}, output_{nullptr};
  nn::Dropout dropout_{nullptr}, output_dropout_{nullptr};
};

}  // namespace gantry::models
