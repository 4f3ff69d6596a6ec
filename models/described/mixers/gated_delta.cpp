#include "gantry/models/described/mixers/gated_delta.h"

#include "gantry/nn/mixers/chunk_tokens.h"

namespace gantry::models {
std::vector<ParameterShape> GatedDelta::parameters(std::int64_t hidden) const {
  std::vector<ParameterShape> shapes;
  const auto add = [&](const std::string& path, std::vector<std::int64_t> shape) {
    shapes.push_back({path, std::move(shape)});
  };
  const auto weight = [&](const char* path, std::vector<std::int64_t> shape) {
    add(std::string(path) + ".weight", std::move(shape));
  };
  if (sizes.grouped) {
    weight(kGroupedInput, {2 * keys() + 2 * values(), hidden});
    weight(kGroupedNumbers, {2 * sizes.value_heads, hidden});
  } else {
    weight(kInput, {channels(), hidden});
    weight(kGate, {values(), hidden});
    weight(kWrite, {sizes.value_heads, hidden});
    weight(kDecayInput, {sizes.value_heads, hidden});
  }
  weight(kConvolution, {channels(), 1, sizes.kernel});
  add(std::string(kDecay) + ".A_log", {sizes.value_heads});
  add(std::string(kDecay) + ".dt_bias", {sizes.value_heads});
  weight(kNorm, {sizes.value_size});
  weight(kOutput, {hidden, values()});
  return shapes;
}

// Grouped rows are sharded by key heads, and separate rows by value heads, with the key heads that these read.
std::vector<ModuleShard> GatedDelta::shards() const {
  const std::int64_t unit = sizes.grouped ? served() : 1, values_of_unit = unit * sizes.value_size;
  const Part keys_part{keys(), sizes.key_size, sizes.grouped ? 0 : sizes.value_heads};
  const Column channels_column{.parts = {keys_part, keys_part, {values(), values_of_unit}}};
  std::vector<ModuleShard> rules;
  if (sizes.grouped)
    rules = {{kGroupedInput, Column{.unit = 2 * sizes.key_size + 2 * values_of_unit}},
             {kGroupedNumbers, Column{.unit = 2 * unit}}};
  else
    rules = {{kInput, channels_column},
             {kGate, Column{.unit = sizes.value_size}},
             {kWrite, Column{}},
             {kDecayInput, Column{}}};
  rules.push_back({kConvolution, channels_column});
  rules.push_back({kDecay, Column{.unit = unit}});
  rules.push_back({kNorm, OnHeads{}});
  rules.push_back({kOutput, Row{.unit = values_of_unit}});
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
  return {.flops = flops,
          .moved = 4 * features + heads * 4 * chunk,
          .kept = 2 * features + heads * (3 * chunk + 3 * key + 2 * value)};
}

}  // namespace gantry::models
