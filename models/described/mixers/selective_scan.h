// Mixers of Mamba (Gu, Dao, arXiv 2312.00752). in_proj computes x and z; x passes a causal convolution with silu;
// x_proj computes dt, b and c from it, and dt_proj widens dt to all channels. The output of the recurrence of
// nn/mixers/selective_scan.h is multiplied by silu(z) and projected by out_proj.
#pragma once

#include "gantry/models/described/mixers/mixer_kind.h"

namespace gantry::models {

struct SelectiveScanSizes {
  // RMS norms of dt, b and c: none, without weights (Falcon Mamba), or with weights (Jamba).
  enum class Norms { kNone, kWeightless, kWeighted };
  std::int64_t channels = 1;
  std::int64_t state = 1;   // numbers of the state of a channel
  std::int64_t rank = 1;    // features of dt before dt_proj
  std::int64_t kernel = 4;  // taps of the convolution
  bool convolution_bias = true, bias = false;
  Norms norms = Norms::kNone;
  double eps = 1e-6;
  double first_initial_step = 0.001, last_initial_step = 0.1;  // see SsdSizes

  bool operator==(const SelectiveScanSizes&) const = default;
};

class SelectiveScan final : public MixerOf<SelectiveScanSizes> {
 public:
  static constexpr const char* kInput = "mamba.in_proj";  // all rows of x, then all of z
  static constexpr const char* kConvolution = "mamba.conv1d";
  static constexpr const char* kSelection = "mamba.x_proj";  // all rows of dt, of b, of c
  static constexpr const char* kStepNorm = "mamba.dt_layernorm";
  static constexpr const char* kInputNorm = "mamba.b_layernorm";
  static constexpr const char* kOutputNorm = "mamba.c_layernorm";
  static constexpr const char* kEnter = "mamba.enter";  // has no parameters
  static constexpr const char* kSteps = "mamba.dt_proj";
  static constexpr const char* kRecurrence = "mamba.recurrence";  // A_log, D and dt_bias
  static constexpr const char* kOutput = "mamba.out_proj";

  using MixerOf::MixerOf;
  std::string name() const override { return "Mamba mixers"; }
  std::vector<ParameterShape> parameters(std::int64_t hidden) const override;
  std::vector<ModuleShard> shards() const override;
  std::int64_t largest_tensor() const override { return sizes.channels; }
  MixerWork work() const override;
};

}  // namespace gantry::models
