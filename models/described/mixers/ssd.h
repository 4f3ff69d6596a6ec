// Mixers of Mamba-2 by state space duality (Dao, Gu: Transformers are SSMs, arXiv 2405.21060). The projection in_proj
// computes z, x, b, c and dt. The features x, b and c pass a causal convolution with silu, and enter the recurrence of
// nn/mixers/ssd.h. Its output is multiplied by silu(z), normalised in groups, and projected by out_proj.
#pragma once

#include <array>
#include <limits>

#include "gantry/models/described/mixers/mixer_kind.h"

namespace gantry::models {

struct SsdSizes {
  std::int64_t heads = 1, head_size = 1;
  std::int64_t groups = 1;  // number of b and c; heads / groups heads share one
  std::int64_t state = 1;   // numbers of a state for each feature of a head
  std::int64_t kernel = 4;  // taps of the convolution
  bool convolution_bias = true, input_bias = false, output_bias = false;
  // Limits of dt after softplus.
  double least_step = 0, largest_step = std::numeric_limits<double>::infinity();
  // Initial dt: spread evenly over this range on a logarithmic scale. 0: dt_bias is 1 instead.
  double first_initial_step = 0, last_initial_step = 0;
  bool normed = true;             // false: the output is only multiplied by silu(z)
  bool norm_before_gate = false;  // the norm comes before the product with silu(z)
  double eps = 1e-5;
  double input_scale = 1, output_scale = 1;
  std::array<double, 5> scales = {1, 1, 1, 1, 1};  // multipliers of z, x, b, c and dt

  std::int64_t inner() const { return heads * head_size; }
  std::int64_t convolved() const { return inner() + 2 * groups * state; }  // channels of x, b and c
  bool operator==(const SsdSizes&) const = default;
};

class Ssd final : public MixerOf<SsdSizes> {
 public:
  static constexpr const char* kInput = "mamba.in_proj";  // all rows of z, of x, of b, of c, of dt
  static constexpr const char* kConvolution = "mamba.conv1d";
  static constexpr const char* kRecurrence = "mamba.recurrence";  // A_log, D and dt_bias
  static constexpr const char* kNorm = "mamba.norm";
  static constexpr const char* kOutput = "mamba.out_proj";

  using MixerOf::MixerOf;
  std::string name() const override { return "Mamba-2 mixers"; }
  std::vector<ParameterShape> parameters(std::int64_t hidden) const override;
  std::vector<ModuleShard> shards() const override;
  std::int64_t largest_tensor() const override { return sizes.heads; }
  MixerWork work() const override;
};

}  // namespace gantry::models
