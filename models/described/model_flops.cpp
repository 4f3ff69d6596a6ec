#include "gantry/models/described/model_flops.h"

#include <algorithm>

#include "gantry/core/slice.h"

namespace gantry::models {

double parameter_count(const DecoderSpec& spec) {
  double count = 0;
  for (const ParameterShape& parameter : parameter_shapes(spec))
    count += static_cast<double>(elements_of(parameter.shape));
  return count;
}

// Matrices of a decoder of this layer alone.
double layer_weights(const DecoderSpec& spec, const LayerSpec& layer) {
  DecoderSpec alone = spec;
  alone.layers = {layer};
  double weights = 0;
  for (const ParameterShape& parameter : parameter_shapes(alone))
    if (parameter.shape.size() > 1 && !parameter.name.ends_with("_bias") &&
        parameter.name.starts_with(spec.names.layers + "."))
      weights += parameter.used * static_cast<double>(elements_of(parameter.shape));
  return weights;
}

double core_flops(const AttentionSpec& attention, double keys) {
  const auto value = static_cast<double>(attention.latent ? attention.latent->value : attention.head_size);
  return 2 * static_cast<double>(attention.heads) * keys * (static_cast<double>(attention.head_size) + value);
}

// Query i, from 0, sees min(i + 1, window) keys where causality counts.
double keys_met(const AttentionSpec& attention, std::int64_t sequence, bool causal_half) {
  const auto all = static_cast<double>(sequence);
  const double window = attention.window > 0 ? std::min(static_cast<double>(attention.window), all) : all;
  if (!causal_half) return window;
  return (window * (window + 1) / 2 + (all - window) * window) / all;
}

ForwardFlops forward_flops(const DecoderSpec& spec, std::int64_t sequence, bool causal_half) {
  ForwardFlops flops;
  double weights = 0;
  for (std::size_t index = 0; index < spec.layers.size(); ++index) {
    const LayerSpec& layer = spec.layers[index];
    if (index == 0 || !(layer == spec.layers[index - 1])) weights = layer_weights(spec, layer);
    flops.weights += 2 * weights;
    flops.attention += core_flops(layer.attention, keys_met(layer.attention, sequence, causal_half));
  }
  flops.head = 2 * static_cast<double>(spec.vocabulary) * static_cast<double>(spec.hidden);
  return flops;
}

double model_flops(const DecoderSpec& spec, std::int64_t samples, std::int64_t sequence, bool causal_half) {
  return 3 * forward_flops(spec, sequence, causal_half).sum() * static_cast<double>(samples) *
         static_cast<double>(sequence);
}

}  // namespace gantry::models
