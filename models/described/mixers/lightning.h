// Lightning attention as in MiniMax-01 (arXiv 2501.08313): linear attention with a constant decay per head
// (nn/mixers/lightning.h), a norm over all heads, and an output gate.
#pragma once

#include "gantry/models/described/mixers/mixer_kind.h"

namespace gantry::models {

struct LightningSizes {
  std::int64_t heads = 1, head_size = 1;
  std::string activation = "silu";  // applied to queries, keys and values
  double decay = 1;                 // factor of the heads' slopes 2^(-8 (h + 1) / heads), which depends on the layer
  double eps = 1e-6;                // the norm's

  bool operator==(const LightningSizes&) const = default;
};

class Lightning final : public MixerOf<LightningSizes> {
 public:
  static constexpr const char* kInput = "self_attn.qkv_proj";  // rows by head: its query, key and value
  static constexpr const char* kGate = "self_attn.output_gate";
  static constexpr const char* kNorm = "self_attn.norm";
  static constexpr const char* kOutput = "self_attn.out_proj";

  using MixerOf::MixerOf;
  std::string name() const override { return "lightning attention"; }
  std::vector<ParameterShape> parameters(std::int64_t hidden) const override;
  std::vector<ModuleShard> shards() const override;
  std::int64_t largest_tensor() const override { return sizes.heads; }
  MixerWork work() const override;

  std::int64_t features() const { return sizes.heads * sizes.head_size; }
  // The logarithmic decay per token of each head, at least 0.
  std::vector<double> slopes() const;
};

}  // namespace gantry::models
