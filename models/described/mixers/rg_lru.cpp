#include "gantry/models/described/mixers/rg_lru.h"

namespace gantry::models {

std::vector<ParameterShape> RgLru::parameters(std::int64_t hidden) const {
  const std::string weight = ".weight", bias = ".bias";
  const std::int64_t channels = sizes.channels(), heads = sizes.heads, size = sizes.head_size;
  std::vector<ParameterShape> shapes;
  for (const char* projection : {kGate, kInput}) {
    shapes.push_back({projection + weight, {channels, hidden}});
    shapes.push_back({projection + bias, {channels}});
  }
  shapes.push_back({kConvolution + weight, {channels, 1, sizes.kernel}});
  shapes.push_back({kConvolution + bias, {channels}});
  for (const char* gate : {kInputGate, kRecurrentGate}) {
    shapes.push_back({gate + weight, {heads, size, size}});
    shapes.push_back({gate + bias, {heads, size}});
  }
  shapes.push_back({std::string(kRate) + ".recurrent_param", {channels}});
  shapes.push_back({kOutput + weight, {hidden, channels}});
  shapes.push_back({kOutput + bias, {hidden}});
  return shapes;
}

std::vector<ModuleShard> RgLru::shards() const {
  const Column heads{.unit = sizes.head_size};
  return {{kGate, heads},
          {kInput, heads},
          {kConvolution, heads},
          {kInputGate, Column{}},
          {kRecurrentGate, Column{}},
          {kRate, heads},
          {kOutput, Row{.unit = sizes.head_size}}};
}

// The recurrence has element-wise operations only. Kept are the inputs of the gates, both gates, the activated one and
// the normalised inputs of the layer, which are about as wide as the channels.
MixerWork RgLru::work() const {
  const auto channels = static_cast<double>(sizes.channels());
  return {.flops = 0,
          .moved = 30 * channels,
          .kept = 6 * channels,
          .kept_wide = channels,
          .working = 4 * channels,
          .exchanged = 2 * channels};
}

}  // namespace gantry::models
