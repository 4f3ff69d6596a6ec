#include "gantry/models/described/mixers/gated_delta.h"

#include <nlohmann/json.hpp>

#include "gantry/models/described/config_keys.h"
#include "gantry/nn/mixers/chunk_tokens.h"

namespace gantry::models {

void require_silu(const DecoderSpec& spec) {
  if (const std::string& activation = spec.layers.front().mlp.activation; activation != "silu")
    refuse_key("hidden_act", activation, "silu, the activation of the convolutions");
}

std::vector<ParameterShape> GatedDelta::parameters(std::int64_t hidden) const {
  std::vector<ParameterShape> shapes;
  const auto weight = [&](const std::string& path, std::vector<std::int64_t> shape) {
    shapes.push_back({path + ".weight", std::move(shape)});
  };
  for (std::size_t part = 0; part < 3 && is_separate(); ++part) {
    weight(projection(kParts[part]), {width_of(part), hidden});
    weight(convolution(kParts[part]), {width_of(part), 1, sizes.kernel});
  }
  if (is_grouped()) {
    weight(kGroupedInput, {2 * keys() + 2 * values(), hidden});
    weight(kGroupedNumbers, {2 * sizes.value_heads, hidden});
  } else {
    if (!is_separate()) weight(kInput, {channels(), hidden});
    weight(gate(), {values(), hidden});
    weight(write(), {sizes.value_heads, hidden});
    weight(decay_input(), {sizes.value_heads, hidden});
  }
  if (!is_separate()) weight(kConvolution, {channels(), 1, sizes.kernel});
  shapes.push_back({std::string(kDecay) + ".A_log", {sizes.value_heads}});
  shapes.push_back({std::string(kDecay) + ".dt_bias", {sizes.value_heads}});
  weight(norm(), {sizes.value_size});
  weight(output(), {hidden, values()});
  return shapes;
}

// Grouped rows are sharded by key heads, and other rows by value heads, with the key heads that these read.
std::vector<ModuleShard> GatedDelta::shards() const {
  const std::int64_t unit = is_grouped() ? served() : 1, values_of_unit = unit * sizes.value_size;
  std::vector<ModuleShard> rules;
  for (std::size_t part = 0; part < 3 && is_separate(); ++part) {
    const Column column =
        part < 2 ? Column{.unit = sizes.key_size, .users = sizes.value_heads} : Column{.unit = sizes.value_size};
    rules.push_back({projection(kParts[part]), column});
    rules.push_back({convolution(kParts[part]), column});
  }
  const Part keys_part{keys(), sizes.key_size, is_grouped() ? 0 : sizes.value_heads};
  const Column channels_column{.parts = {keys_part, keys_part, {values(), values_of_unit}}};
  if (is_grouped()) {
    rules.push_back({kGroupedInput, Column{.unit = 2 * sizes.key_size + 2 * values_of_unit}});
    rules.push_back({kGroupedNumbers, Column{.unit = 2 * unit}});
  } else {
    if (!is_separate()) rules.push_back({kInput, channels_column});
    rules.push_back({gate(), Column{.unit = sizes.value_size}});
    rules.push_back({write(), Column{}});
    rules.push_back({decay_input(), Column{}});
  }
  if (!is_separate()) rules.push_back({kConvolution, channels_column});
  rules.push_back({kDecay, Column{.unit = unit}});
  rules.push_back({norm(), OnHeads{}});
  rules.push_back({output(), Row{.unit = values_of_unit}});
  return rules;
}

// Products of a chunk by value head: scores of queries and of keys, the triangular system, reads and writes of the
// state, and the scores' products with values. Rates of the convolution are those of element-wise operations.
MixerWork GatedDelta::work() const {
  const double key = static_cast<double>(sizes.key_size), value = static_cast<double>(sizes.value_size);
  const double heads = static_cast<double>(sizes.value_heads);
  const auto chunk = static_cast<double>(nn::kChunkTokens);
  const double flops = heads * (4 * chunk * key + chunk * (key + value) + 2 * chunk * value + 6 * key * value);
  const double features = static_cast<double>(channels() + 2 * values());
  // Decays, three forms of the scores of queries and of keys, the state before the chunk, queries and keys in several
  // forms, values, written values and keys.
  const double repeated = served() > 1 ? 2 * key : 0;
  const double by_head = 6 * chunk + 4 * key + repeated + 3 * value + key * value / chunk;
  return {.flops = flops,
          .moved = 4 * features + heads * 4 * chunk,
          .kept = static_cast<double>(channels() + 4 * values()),
          .kept_wide = static_cast<double>(2 * keys()) + heads * by_head,
          .working = heads * (3 * chunk + 2 * key + 2 * value),
          .exchanged = static_cast<double>(2 * values()) + 2 * heads,
          .shared_blocks = sizes.key_heads,
          .shared_size = 2 * key};
}

}  // namespace gantry::models
