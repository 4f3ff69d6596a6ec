#include "gantry/models/described/mixers/kimi_delta.h"

#include "gantry/nn/mixers/chunk_tokens.h"

namespace gantry::models {
std::vector<ParameterShape> KimiDelta::parameters(std::int64_t hidden) const {
  const std::string weight = ".weight";
  const std::int64_t rank = sizes.head_size;
  std::vector<ParameterShape> shapes;
  for (const char* part : kParts) {
    shapes.push_back({projection(part) + weight, {features(), hidden}});
    shapes.push_back({convolution(part) + weight, {features(), 1, sizes.kernel}});
  }
  shapes.push_back({kWrite + weight, {sizes.heads, hidden}});
  shapes.push_back({kDecayDown + weight, {rank, hidden}});
  shapes.push_back({kDecayUp + weight, {features(), rank}});
  shapes.push_back({std::string(kRate) + ".A_log", {1, 1, sizes.heads, 1}});
  shapes.push_back({std::string(kStep) + ".dt_bias", {features()}});
  shapes.push_back({kGateDown + weight, {rank, hidden}});
  shapes.push_back({kGateUp + weight, {features(), rank}});
  shapes.push_back({kNorm + weight, {sizes.head_size}});
  shapes.push_back({kOutput + weight, {hidden, features()}});
  return shapes;
}

std::vector<ModuleShard> KimiDelta::shards() const {
  const Column heads{.unit = sizes.head_size};
  std::vector<ModuleShard> rules;
  for (const char* part : kParts) {
    rules.push_back({projection(part), heads});
    rules.push_back({convolution(part), heads});
  }
  rules.push_back({kWrite, Column{}});
  rules.push_back({kDecayUp, heads});
  rules.push_back({kRate, Column{}});
  rules.push_back({kStep, heads});
  rules.push_back({kGateUp, heads});
  rules.push_back({kNorm, OnHeads{}});
  rules.push_back({kOutput, Row{.unit = sizes.head_size}});
  return rules;
}

// Products of a chunk by head: scores of queries and of keys, the triangular system, reads and writes of the state, and
// the scores' products with values.
MixerWork KimiDelta::work() const {
  const double size = static_cast<double>(sizes.head_size), heads = static_cast<double>(sizes.heads);
  const auto width = static_cast<double>(features());
  const auto chunk = static_cast<double>(nn::kChunkTokens);
  return {.flops = heads * (6 * chunk * size + 6 * size * size),
          .moved = 40 * width + 6 * heads * chunk,
          .kept = 5 * width,
          .kept_wide = 13 * width + 3 * heads * chunk + width * size / chunk,
          .exchanged = 5 * width + heads};
}

}  // namespace gantry::models
