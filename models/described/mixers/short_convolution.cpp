#include "gantry/models/described/mixers/short_convolution.h"

namespace gantry::models {

std::vector<ParameterShape> ShortConvolution::parameters(std::int64_t hidden) const {
  const std::string input = kInput, convolution = kConvolution, output = kOutput;
  std::vector<ParameterShape> shapes = {{input + ".weight", {3 * sizes.channels, hidden}},
                                        {convolution + ".weight", {sizes.channels, 1, sizes.kernel}},
                                        {output + ".weight", {hidden, sizes.channels}}};
  if (!sizes.bias) return shapes;
  shapes.push_back({input + ".bias", {3 * sizes.channels}});
  shapes.push_back({convolution + ".bias", {sizes.channels}});
  shapes.push_back({output + ".bias", {hidden}});
  return shapes;
}

std::vector<ModuleShard> ShortConvolution::shards() const {
  return {{kInput, Column{.segments = 3}}, {kConvolution, Column{}}, {kOutput, Row{}}};
}

// Two products with gates, and the convolution.
MixerWork ShortConvolution::work() const {
  const auto channels = static_cast<double>(sizes.channels);
  return {.flops = 0, .moved = (3 + 2 + 3) * channels, .kept = (3 + 2) * channels, .exchanged = 2 * channels};
}

}  // namespace gantry::models
