// The module of a layer's mixer, for the kinds of models/described/mixers.
#pragma once

#include <memory>

#include <torch/nn/module.h>

#include "gantry/models/described/mixers/mixer_kind.h"
#include "gantry/nn/key_value_cache.h"

namespace gantry::models {

// The modules of one layer. They are registered below the layer, which owns their parameters.
class LayerMixer {
 public:
  virtual ~LayerMixer() = default;
  // [B, S, hidden] -> the same shape. With a cache in `tokens`, the input follows the tokens that the state of layer
  // `layer` has seen. Padding (TokenContext::keep) and tokens of other documents have no influence on a token. With
  // context parallelism the input has the tokens of this rank, and the call is collective over cp (nn::HeadExchange).
  virtual torch::Tensor forward(const torch::Tensor& input, const nn::TokenContext& tokens, int layer) = 0;
};

// Registers the modules of the kind below `layer`, at the paths of MixerKind::parameters().
std::shared_ptr<LayerMixer> make_mixer(const MixerKind& kind, torch::nn::Module& layer, std::int64_t hidden);

}  // namespace gantry::models
