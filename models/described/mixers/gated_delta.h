// Gated delta networks (arXiv 2412.06464) of Qwen3-Next, Qwen 3.5 and OLMo hybrid. They consist of projections, a short
// convolution over queries, keys and values, the gated delta rule (nn/mixers/gated_delta.h), and a norm of each head
// that is gated.
#pragma once

#include "gantry/models/described/mixers/mixer_kind.h"

namespace gantry::models {

struct GatedDeltaSizes {
  std::int64_t key_heads = 1, value_heads = 1;  // key head h serves value_heads / key_heads consecutive value heads
  std::int64_t key_size = 1, value_size = 1;    // features of a head
  std::int64_t kernel = 4;                      // tokens that the convolution sees
  double eps = 1e-6;                            // the norm's
  enum class Projections {
    kJoined,   // one of all queries, keys and values, one of the gates z, one of the numbers b, and one of a (Qwen 3.5)
    kGrouped,  // two whose rows are in groups, one for each key head: its query, key, values and z, and its b and a
               // (Qwen3-Next)
    kSeparate  // one of each, and convolutions of queries, keys and values (OLMo hybrid)
  };
  Projections projections = Projections::kJoined;
  bool negative = false;  // a token may write up to twice its value, so that the state has negative eigenvalues

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
  // The modules of separate projections.
  static constexpr const char* kParts[] = {"q", "k", "v"};  // linear_attn.q_proj and linear_attn.q_conv1d, ...
  static constexpr const char* kSeparateGate = "linear_attn.g_proj";
  static constexpr const char* kSeparateWrite = "linear_attn.b_proj";
  static constexpr const char* kSeparateDecayInput = "linear_attn.a_proj";
  static constexpr const char* kSeparateNorm = "linear_attn.o_norm";
  static constexpr const char* kSeparateOutput = "linear_attn.o_proj";

  using MixerOf::MixerOf;
  std::string name() const override { return "gated delta networks"; }
  std::vector<ParameterShape> parameters(std::int64_t hidden) const override;
  std::vector<ModuleShard> shards() const override;
  std::int64_t largest_tensor() const override { return is_grouped() ? sizes.key_heads : sizes.value_heads; }
  std::int64_t largest_context(std::int64_t tensor) const override {
    return is_grouped() ? sizes.key_heads / tensor * served() : sizes.value_heads / tensor;
  }
  MixerWork work() const override;

  bool is_grouped() const { return sizes.projections == GatedDeltaSizes::Projections::kGrouped; }
  bool is_separate() const { return sizes.projections == GatedDeltaSizes::Projections::kSeparate; }
  const char* gate() const { return is_separate() ? kSeparateGate : kGate; }
  const char* write() const { return is_separate() ? kSeparateWrite : kWrite; }
  const char* decay_input() const { return is_separate() ? kSeparateDecayInput : kDecayInput; }
  const char* norm() const { return is_separate() ? kSeparateNorm : kNorm; }
  const char* output() const { return is_separate() ? kSeparateOutput : kOutput; }
  static std::string projection(const char* part) { return std::string("linear_attn.") + part + "_proj"; }
  static std::string convolution(const char* part) { return std::string("linear_attn.") + part + "_conv1d"; }
  std::int64_t width_of(std::size_t part) const { return part < 2 ? keys() : values(); }  // one of kParts
  std::int64_t keys() const { return sizes.key_heads * sizes.key_size; }                  // features of all key heads
  std::int64_t values() const { return sizes.value_heads * sizes.value_size; }            // features of all value heads
  std::int64_t channels() const { return 2 * keys() + values(); }                         // channels of the convolution
  std::int64_t served() const { return sizes.value_heads / sizes.key_heads; }             // value heads of a key head
};

// Throws ConfigError unless the decoder has SiLU, the activation of the convolutions.
void require_silu(const DecoderSpec& spec);

}  // namespace gantry::models
