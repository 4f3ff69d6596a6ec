// Recurrent blocks of Griffin and Hawk (De et al., arXiv 2402.19427). The projection linear_x passes a causal
// convolution and the recurrence of nn/mixers/rg_lru.h, whose gates read each head alone. The result is multiplied by
// the activation of linear_y, and projected by linear_out.
#pragma once

#include <string>

#include "gantry/models/described/mixers/mixer_kind.h"

namespace gantry::models {

struct RgLruSizes {
  std::int64_t heads = 1, head_size = 1;
  std::int64_t kernel = 4;  // taps of the convolution
  std::string activation = "gelu_pytorch_tanh";

  std::int64_t channels() const { return heads * head_size; }
  bool operator==(const RgLruSizes&) const = default;
};

class RgLru final : public MixerOf<RgLruSizes> {
 public:
  static constexpr const char* kGate = "temporal_block.linear_y";
  static constexpr const char* kInput = "temporal_block.linear_x";
  static constexpr const char* kConvolution = "temporal_block.conv_1d";
  static constexpr const char* kInputGate = "temporal_block.rg_lru.input_gate";  // weight and bias by head
  static constexpr const char* kRecurrentGate = "temporal_block.rg_lru.recurrent_gate";
  static constexpr const char* kRate = "temporal_block.rg_lru.rate";  // recurrent_param
  static constexpr const char* kOutput = "temporal_block.linear_out";

  using MixerOf::MixerOf;
  std::string name() const override { return "gated linear recurrences"; }
  std::vector<ParameterShape> parameters(std::int64_t hidden) const override;
  std::vector<ModuleShard> shards() const override;
  std::int64_t largest_tensor() const override { return sizes.heads; }
  MixerWork work() const override;
};

}  // namespace gantry::models
