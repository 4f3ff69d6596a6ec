// How large a described decoder is, and how much it computes: from the description alone.
#pragma once

#include <cstdint>

#include "gantry/models/described/decoder_spec.h"

namespace gantry::models {

// A tied head's weight counts once.
double parameter_count(const DecoderSpec& spec);

// Multiplications and additions of a forward, two each, of one token among `sequence`: products with weights (of
// experts those that are used) and the two of the attention core. Each query meets all keys, or its window's; with
// `causal_half` those before it alone. Element-wise work, norms and look-ups are not counted. A backward has twice as
// many.
struct ForwardFlops {
  double weights = 0;    // of layers
  double attention = 0;  // of the cores
  double head = 0;       // and what projects a narrower embedding into and out of the layers

  double sum() const { return weights + attention + head; }
};
ForwardFlops forward_flops(const DecoderSpec& spec, std::int64_t sequence, bool causal_half = false);

// Of forward and backward of so many samples: what a utilisation is said of, where nothing else is stated with
// attention in full.
double model_flops(const DecoderSpec& spec, std::int64_t samples, std::int64_t sequence, bool causal_half = false);

// Of one layer among `hidden` features, a token's forward, whose query meets `keys` keys.
double layer_flops(const LayerSpec& layer, std::int64_t hidden, double keys);
// The weights that a token is multiplied with in it, of experts those that are used; and behind the layers.
double layer_weights(const LayerSpec& layer, std::int64_t hidden);
double head_weights(const DecoderSpec& spec);
// What projects a narrower embedding into the layers; 0: there is none.
double embedding_weights(const DecoderSpec& spec);
// Multiplications and additions of one query with `keys` keys, and with their values.
double core_flops(const AttentionSpec& attention, double keys);
// The keys that a query meets on average.
double keys_met(const AttentionSpec& attention, std::int64_t sequence, bool causal_half);

}  // namespace gantry::models
