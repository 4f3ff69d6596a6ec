#include "gantry/models/described/mixers/lightning.h"

#include <cmath>

#include "gantry/nn/mixers/chunk_tokens.h"

namespace gantry::models {
std::vector<ParameterShape> Lightning::parameters(std::int64_t hidden) const {
  const std::string weight = ".weight";
  return {{kInput + weight, {3 * features(), hidden}},
          {kGate + weight, {features(), hidden}},
          {kNorm + weight, {features()}},
          {kOutput + weight, {hidden, features()}}};
}

std::vector<ModuleShard> Lightning::shards() const {
  const std::int64_t size = sizes.head_size;
  return {{kInput, Column{.unit = 3 * size}},
          {kGate, Column{.unit = size}},
          {kNorm, Column{.unit = size}},
          {kOutput, Row{.unit = size}}};
}

// Products of a chunk by head: scores, their products with values, reads and writes of the state.
MixerWork Lightning::work() const {
  const double size = static_cast<double>(sizes.head_size), heads = static_cast<double>(sizes.heads);
  const auto width = static_cast<double>(features());
  const auto chunk = static_cast<double>(nn::kChunkTokens);
  return {.flops = heads * (4 * chunk * size + 4 * size * size),
          .moved = 14 * width + 4 * heads * chunk,
          .kept = 4 * width,
          .kept_wide = 4 * width + 2 * heads * chunk + width * size / chunk,
          .exchanged = 4 * width};
}

std::vector<double> Lightning::slopes() const {
  std::vector<double> slopes;
  for (std::int64_t head = 1; head <= sizes.heads; ++head)
    slopes.push_back(sizes.decay * std::pow(2.0, -8.0 * static_cast<double>(head) / static_cast<double>(sizes.heads)));
  return slopes;
}

}  // namespace gantry::models
