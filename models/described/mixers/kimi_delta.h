// Kimi delta attention (Kimi Linear, arXiv 2510.26692): short convolutions, a delta rule with a decay for each channel
// of the keys (nn/mixers/kimi_delta.h), and a gated norm of each head. Decays and gates are low-rank projections.
#pragma once

#include "gantry/models/described/mixers/mixer_kind.h"

namespace gantry::models {

struct KimiDeltaSizes {
  std::int64_t heads = 1, head_size = 1;  // the rank of decays and gates is head_size
  std::int64_t kernel = 4;                // tokens that the convolutions see
  double eps = 1e-6;                      // the norm's

  bool operator==(const KimiDeltaSizes&) const = default;
};

// Files have its modules below self_attn, where those of other layers have other shapes.
class KimiDelta final : public MixerOf<KimiDeltaSizes> {
 public:
  static constexpr const char* kParts[] = {"q", "k", "v"};    // delta_attn.q_proj and delta_attn.q_conv1d, ...
  static constexpr const char* kWrite = "delta_attn.b_proj";  // sigmoid(b) scales what a token writes
  static constexpr const char* kDecayDown = "delta_attn.f_a_proj";
  static constexpr const char* kDecayUp = "delta_attn.f_b_proj";
  static constexpr const char* kRate = "delta_attn.rate";  // a decay is -exp(A_log) softplus(f + dt_bias)
  static constexpr const char* kStep = "delta_attn.step";
  static constexpr const char* kGateDown = "delta_attn.g_a_proj";
  static constexpr const char* kGateUp = "delta_attn.g_b_proj";
  static constexpr const char* kNorm = "delta_attn.o_norm";
  static constexpr const char* kOutput = "delta_attn.o_proj";

  using MixerOf::MixerOf;
  std::string name() const override { return "Kimi delta attention"; }
  std::vector<ParameterShape> parameters(std::int64_t hidden) const override;
  std::vector<ModuleShard> shards() const override;
  std::int64_t largest_tensor() const override { return sizes.heads; }
  MixerWork work() const override;

  std::int64_t features() const { return sizes.heads * sizes.head_size; }
  static std::string projection(const char* part) { return std::string("delta_attn.") + part + "_proj"; }
  static std::string convolution(const char* part) { return std::string("delta_attn.") + part + "_conv1d"; }
};

}  // namespace gantry::models
