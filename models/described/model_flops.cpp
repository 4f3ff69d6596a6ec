#include "gantry/models/described/model_flops.h"

#include <algorithm>

#include "gantry/core/slice.h"
#include "gantry/models/described/mixers/mixer_kind.h"

namespace gantry::models {

double parameter_count(const DecoderSpec& spec) {
  double count = 0;
  for (const ParameterShape& parameter : parameter_shapes(spec))
    count += static_cast<double>(elements_of(parameter.shape));
  return count;
}

// The weights in the matrices of a decoder that has only this layer.
double layer_weights(const LayerSpec& layer, std::int64_t hidden) {
  DecoderSpec alone;
  alone.hidden = hidden;
  alone.layers = {layer};
  const DecoderNames& names = alone.names;
  const auto is_norm_of_heads = [&](const std::string& name) {  // a row for each head
    return name.ends_with(names.query_norm + ".weight") || name.ends_with(names.key_norm + ".weight");
  };
  double weights = 0;
  for (const auto& [name, shape, used] : parameter_shapes(alone))
    if (shape.size() > 1 && !name.ends_with("bias") && name.starts_with(names.layers + ".") && !is_norm_of_heads(name))
      weights += used * static_cast<double>(elements_of(shape));
  return weights;
}

double embedding_weights(const DecoderSpec& spec) {
  return static_cast<double>(spec.embedding_width) * static_cast<double>(spec.hidden);
}

double entry_weights(const DecoderSpec& spec) {
  const auto hidden = static_cast<double>(spec.hidden);
  const double inputs = spec.layer_inputs ? static_cast<double>(spec.layer_inputs->columns()) : 0;
  return embedding_weights(spec) + hidden * inputs + stream_weights(spec);
}

double stream_weights(const DecoderSpec& spec) {
  return static_cast<double>(spec.streams - 1) * static_cast<double>(spec.hidden) * static_cast<double>(spec.hidden);
}

double head_weights(const DecoderSpec& spec) {
  const std::int64_t rows = predicts_tokens(spec) ? spec.vocabulary : 0;  // other heads read one token per sample
  const double uses = 1 + mtp_depths(spec);  // each depth of multi-token prediction uses the head
  return uses * static_cast<double>(rows) * static_cast<double>(embedding_columns(spec)) + embedding_weights(spec) +
         stream_weights(spec);
}

double core_flops(const AttentionSpec& attention, double keys) {
  const auto value = static_cast<double>(attention.latent ? attention.latent->value : attention.head_size);
  return 2 * static_cast<double>(attention.heads) * keys * (static_cast<double>(attention.head_size) + value);
}

namespace {

// With causal_half, query i of each chunk, from 0, sees i + 1 keys.
double keys_met_in_chunks(std::int64_t chunk, std::int64_t sequence, bool causal_half) {
  const std::int64_t used = std::min(chunk, sequence), chunks = sequence / used, rest = sequence % used;
  if (!causal_half) return static_cast<double>(used);
  const auto pairs = [](std::int64_t tokens) {
    return static_cast<double>(tokens) * static_cast<double>(tokens + 1) / 2;
  };
  return (static_cast<double>(chunks) * pairs(used) + pairs(rest)) / static_cast<double>(sequence);
}

}  // namespace

// With causal_half, query i, from 0, sees min(i + 1, window) keys.
double keys_met(const AttentionSpec& attention, std::int64_t sequence, bool causal_half) {
  if (attention.chunk > 0) return keys_met_in_chunks(attention.chunk, sequence, causal_half);
  const auto all = static_cast<double>(sequence);
  const double window = attention.window > 0 ? std::min(static_cast<double>(attention.window), all) : all;
  if (!causal_half) return window;
  return (window * (window + 1) / 2 + (all - window) * window) / all;
}

double layer_flops(const LayerSpec& layer, std::int64_t hidden, double keys) {
  return 2 * layer_weights(layer, hidden) + (layer.mixer ? layer.mixer->work().flops : 0) +
         (layer.has_attention() ? core_flops(layer.attention, keys) : 0);
}

ForwardFlops forward_flops(const DecoderSpec& spec, std::int64_t sequence, bool causal_half) {
  ForwardFlops flops;
  double weights = 0;
  for (std::size_t index = 0; index < spec.layers.size(); ++index) {
    const LayerSpec& layer = spec.layers[index];
    if (index == 0 || !(layer == spec.layers[index - 1])) weights = layer_weights(layer, spec.hidden);
    flops.weights += 2 * weights;
    if (layer.mixer) flops.attention += layer.mixer->work().flops;
    if (layer.has_attention())
      flops.attention += core_flops(layer.attention, keys_met(layer.attention, sequence, causal_half));
  }
  flops.head = 2 * (entry_weights(spec) + head_weights(spec));
  return flops;
}

double model_flops(const DecoderSpec& spec, std::int64_t samples, std::int64_t sequence, bool causal_half) {
  return 3 * forward_flops(spec, sequence, causal_half).sum() * static_cast<double>(samples) *
         static_cast<double>(sequence);
}

}  // namespace gantry::models
