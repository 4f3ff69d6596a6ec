// Embeddings of tokens for each layer (Gemma 3n): a table with the columns of all layers, and a projection of the
// model's own embedding. The first stage computes them for all layers; stages pass on those of later layers.
#pragma once

#include <optional>
#include <string>

#include "gantry/models/decoder.h"
#include "gantry/schedule/pipeline_stage_manager.h"

namespace gantry::models {

// The entry of a state with the embeddings of the layers after those of the stage, [B, S, layers * width].
inline constexpr const char* kLayerInputs = "layer_inputs";
// The entry with the embedding of one layer, [B, S, width].
std::string layer_input(int layer);
// Replaces kLayerInputs, whose first columns belong to the first layer of `range`, by the entries of these layers and
// the rest, if any.
void split_layer_inputs(TensorDict& state, const LayerRange& range, std::int64_t width);

class LayerInputs {
 public:
  // Registers its modules below `root`, a decoder.
  LayerInputs(torch::nn::Module& root, const DecoderSpec& spec);
  // input_ids [B, S] and their embeddings [B, S or this rank's part, H] -> [B, S or the part, layers * width].
  torch::Tensor forward(const torch::Tensor& input_ids, const torch::Tensor& embedded);
  // Zeroes the row of the padding token.
  void clear_padding();

 private:
  const LayerInputsSpec spec_;
  const std::optional<std::int64_t> padding_;
  double table_scale_, projection_scale_;
  nn::Embedding table_{nullptr};
  nn::Linear projection_{nullptr};
  DecoderNorm norm_;
};

// The use of a layer's embedding: norm(P (activation(G hidden) * embedding)).
class LayerInputGate {
 public:
  // Registers its modules below `root`, a layer.
  LayerInputGate(torch::nn::Module& root, const LayerSpec& layer, const DecoderNames& names, std::int64_t hidden);
  // [B, S, H] and [B, S, width] -> [B, S, H].
  torch::Tensor operator()(const torch::Tensor& hidden, const torch::Tensor& embedding);

 private:
  std::string activation_;
  nn::Linear gate_{nullptr}, projection_{nullptr};
  DecoderNorm norm_;
};

}  // namespace gantry::models
