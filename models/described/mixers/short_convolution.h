// Gated short convolutions (Liquid AI, LFM2): out_proj(c * convolution(b * x)), where in_proj computes b, c and x. The
// convolution is causal and has a kernel for each channel.
#pragma once

#include "gantry/models/described/mixers/mixer_kind.h"

namespace gantry::models {

struct ShortConvolutionSizes {
  std::int64_t channels = 1;
  std::int64_t kernel = 3;  // tokens that a token sees, with itself
  bool bias = false;        // biases of both projections and of the convolution

  bool operator==(const ShortConvolutionSizes&) const = default;
};

class ShortConvolution final : public MixerOf<ShortConvolutionSizes> {
 public:
  static constexpr const char* kInput = "conv.in_proj";  // [3 channels, hidden]: all of b, all of c, all of x
  static constexpr const char* kConvolution = "conv.conv";
  static constexpr const char* kOutput = "conv.out_proj";

  using MixerOf::MixerOf;
  std::string name() const override { return "short convolutions"; }
  std::vector<ParameterShape> parameters(std::int64_t hidden) const override;
  std::vector<ModuleShard> shards() const override;
  std::int64_t largest_tensor() const override { return sizes.channels; }
  MixerWork work() const override;
};

}  // namespace gantry::models
