#include "gantry/models/described/mixers/selective_scan.h"

namespace gantry::models {

std::vector<ParameterShape> SelectiveScan::parameters(std::int64_t hidden) const {
  const auto named = [](const char* module, const char* parameter) { return std::string(module) + "." + parameter; };
  const std::int64_t channels = sizes.channels;
  std::vector<ParameterShape> shapes = {{named(kInput, "weight"), {2 * channels, hidden}},
                                        {named(kConvolution, "weight"), {channels, 1, sizes.kernel}},
                                        {named(kSelection, "weight"), {sizes.rank + 2 * sizes.state, channels}},
                                        {named(kSteps, "weight"), {channels, sizes.rank}},
                                        {named(kRecurrence, "A_log"), {channels, sizes.state}},
                                        {named(kRecurrence, "D"), {channels}},
                                        {named(kRecurrence, "dt_bias"), {channels}},
                                        {named(kOutput, "weight"), {hidden, channels}}};
  if (sizes.norms == SelectiveScanSizes::Norms::kWeighted) {
    shapes.push_back({named(kStepNorm, "weight"), {sizes.rank}});
    shapes.push_back({named(kInputNorm, "weight"), {sizes.state}});
    shapes.push_back({named(kOutputNorm, "weight"), {sizes.state}});
  }
  if (sizes.convolution_bias) shapes.push_back({named(kConvolution, "bias"), {channels}});
  if (!sizes.bias) return shapes;
  shapes.push_back({named(kInput, "bias"), {2 * channels}});
  shapes.push_back({named(kOutput, "bias"), {hidden}});
  return shapes;
}

// By channels. x_proj reads all of them, so its output is a sum over ranks, of which each rank uses all.
std::vector<ModuleShard> SelectiveScan::shards() const {
  return {{kInput, Column{.segments = 2}},
          {kConvolution, Column{}},
          {kSelection, Row{}},
          {kEnter, Column{}},
          {kSteps, Column{}},
          {kRecurrence, Column{}},
          {kOutput, Row{}}};
}

// The two products with a state in each step. That of dt and A_log is counted as one with a parameter.
MixerWork SelectiveScan::work() const {
  const auto channels = static_cast<double>(sizes.channels), states = channels * static_cast<double>(sizes.state);
  return {.flops = 4 * states,
          .moved = 9 * channels + 2 * states,
          .kept = 5 * channels,
          .exchanged = 4 * channels,
          .shared_blocks = 1,
          .shared_size = 2 * static_cast<double>(sizes.state)};
}

}  // namespace gantry::models
