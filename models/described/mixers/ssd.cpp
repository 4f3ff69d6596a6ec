#include "gantry/models/described/mixers/ssd.h"

#include "gantry/nn/mixers/chunk_tokens.h"

namespace gantry::models {

std::vector<ParameterShape> Ssd::parameters(std::int64_t hidden) const {
  const std::string input = kInput, convolution = kConvolution, recurrence = kRecurrence, output = kOutput;
  const std::int64_t rows = sizes.inner() + sizes.convolved() + sizes.heads;
  std::vector<ParameterShape> shapes = {
      {input + ".weight", {rows, hidden}},      {convolution + ".weight", {sizes.convolved(), 1, sizes.kernel}},
      {recurrence + ".A_log", {sizes.heads}},   {recurrence + ".D", {sizes.heads}},
      {recurrence + ".dt_bias", {sizes.heads}}, {output + ".weight", {hidden, sizes.inner()}}};
  if (sizes.normed) shapes.push_back({std::string(kNorm) + ".weight", {sizes.inner()}});
  if (sizes.input_bias) shapes.push_back({input + ".bias", {rows}});
  if (sizes.convolution_bias) shapes.push_back({convolution + ".bias", {sizes.convolved()}});
  if (sizes.output_bias) shapes.push_back({output + ".bias", {hidden}});
  return shapes;
}

// By heads. A rank has the groups of b and c that its heads read, like KV heads that several query heads share.
std::vector<ModuleShard> Ssd::shards() const {
  const Part inner{sizes.inner(), sizes.head_size}, group{sizes.groups * sizes.state, sizes.state, sizes.heads};
  std::vector<ModuleShard> rules = {{kInput, Column{.parts = {inner, inner, group, group, {sizes.heads, 1}}}},
                                    {kConvolution, Column{.parts = {inner, group, group}}},
                                    {kRecurrence, Column{}},
                                    {kOutput, Row{.unit = sizes.head_size}}};
  if (sizes.normed) rules.push_back({kNorm, Column{.unit = sizes.head_size}});
  return rules;
}

// The two products with a state in each step, counted for the recurrence.
MixerWork Ssd::work() const {
  const auto inner = static_cast<double>(sizes.inner()), convolved = static_cast<double>(sizes.convolved());
  const auto heads = static_cast<double>(sizes.heads), groups = static_cast<double>(sizes.groups);
  const auto state = static_cast<double>(sizes.state), chunk = static_cast<double>(nn::kChunkTokens);
  // Decays and scores by head, products of queries and keys by group, and the state before the chunk.
  const double chunked = 2 * heads * chunk + groups * (chunk + 2 * state) + inner * state / chunk;
  return {.flops = 4 * inner * static_cast<double>(sizes.state),
          .moved = 2 * convolved + (sizes.normed ? 9 : 7) * inner,
          .kept = 2 * convolved + (sizes.normed ? 0 : 2) * inner,
          .kept_wide = chunked + (sizes.normed ? 7 : 3) * inner,
          .exchanged = 2 * inner + static_cast<double>(sizes.heads),
          .shared_blocks = sizes.groups,
          .shared_size = 2 * static_cast<double>(sizes.state)};
}

}  // namespace gantry::models
