// The number of parameters and the FLOPs of a decoder, computed from its description.
#pragma once

#include <cstdint>

#include "gantry/models/described/decoder_spec.h"

namespace gantry::models {

// The number of parameters. A tied weight counts once.
double parameter_count(const DecoderSpec& spec);

// FLOPs per token of a forward over `sequence` tokens (a multiplication and an addition are 2): the matrix
// multiplications with weights (for experts, the used ones) and the two of the attention core. A query attends to all
// keys, or to those in its window; with `causal_half`, only to those up to its own position. Element-wise operations,
// norms and look-ups are not counted. A backward has twice as many.
struct ForwardFlops {
  double weights = 0;    // FLOPs of the layers
  double attention = 0;  // FLOPs of the attention cores, and of mixers in their place
  double head = 0;       // FLOPs of the head, including the projections before the first and after the last layer

  double sum() const { return weights + attention + head; }
};
ForwardFlops forward_flops(const DecoderSpec& spec, std::int64_t sequence, bool causal_half = false);

// FLOPs of forward and backward of `samples` samples: the basis of reported utilisations. Unless stated otherwise,
// attention counts in full (`causal_half` false).
double model_flops(const DecoderSpec& spec, std::int64_t samples, std::int64_t sequence, bool causal_half = false);

// FLOPs per token of the forward of one layer with `hidden` features, for a query that attends to `keys` keys.
double layer_flops(const LayerSpec& layer, std::int64_t hidden, double keys);
// The number of weights that a token is multiplied by in a layer (for experts, the used ones), and after the layers.
double layer_weights(const LayerSpec& layer, std::int64_t hidden);
double head_weights(const DecoderSpec& spec);
// The number of weights that project a narrower embedding into the layers; 0: none.
double embedding_weights(const DecoderSpec& spec);
// The number of weights that make or merge the streams of AltUp; 0: none.
double stream_weights(const DecoderSpec& spec);
// The number of weights that a token is multiplied by before the layers.
double entry_weights(const DecoderSpec& spec);
// FLOPs of one query with `keys` keys and their values.
double core_flops(const AttentionSpec& attention, double keys);
// The mean number of keys that a query attends to.
double keys_met(const AttentionSpec& attention, std::int64_t sequence, bool causal_half);

}  // namespace gantry::models
