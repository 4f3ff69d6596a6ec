// Gated delta networks (arXiv 2412.06464) as in Qwen3-Next and Qwen 3.5: projections, a short convolution over queries,
// keys and values, the gated delta rule (nn/mixers/gated_delta.h), and a norm of each head that is gated.
#pragma once

#include "gantry/models/described/mixers/mixer_kind.h"

namespace gantry::models {

struct GatedDeltaSizes {
  std::int64_t key_heads = 1, value_heads = 1;  // key head h serves value_heads / key_heads consecutive value heads
  std::int64_t key_size = 1, value_size = 1;    // features of a head
  std::int64_t kernel = 4;                      // tokens that the convolution sees
  double eps = 1e-6;                            // the norm's
  // True: two projections whose rows are in groups, one for each key head: its query, key, values and gates z, and its
  // numbers b and a (Qwen3-Next). False: four projections, of all queries, keys and values, of z, of b, and of a.
  bool grouped = false;

  bool operator==(const GatedDeltaSizes&) const = default;
};

class GatedDelta final : public MixerOf<GatedDeltaSizes> {
 public:
  static constexpr const char* kGroupedInput = "linear_attn.in_proj_qkvz";
  static constexpr const char* kGroupedNumbers = "linear_attn.in_proj_ba";
  static constexpr const char* kInput = "linear_attn.in_proj_qkv";
  static constexpr const char* kGate = "linear_attn.in_proj_z";
  static constexpr const char* kWrite = "linear_attn.in_proj_b";  // sigmoid(b) scales what a token writes
  static constexpr const char* kDecayInput = "linear_attn.in_proj_a";
  static constexpr const char* kConvolution = "linear_attn.conv1d";
  static constexpr const char* kDecay = "linear_attn.decay";  // nn::HeadDecay
  static constexpr const char* kNorm = "linear_attn.norm";
  static constexpr const char* kOutput = "linear_attn.out_proj";

  using MixerOf::MixerOf;
  std::string name() const override { return "gated delta networks"; }
  std::vector<ParameterShape> parameters(std::int64_t hidden) const override;
  std::vector<ModuleShard> shards() const override;
  std::int64_t largest_tensor() const override { return sizes.grouped ? sizes.key_heads : sizes.value_heads; }
  MixerWork work() const override;

  std::int64_t keys() const { return sizes.key_heads * sizes.key_size; }        // features of all key heads
  std::int64_t values() const { return sizes.value_heads * sizes.value_size; }  // features of all value heads
  std::int64_t channels() const { return 2 * keys() + values(); }               // channels of the convolution
  std::int64_t served() const { return sizes.value_heads / sizes.key_heads; }   // value heads of a key head
};

}  // namespace gantry::models
