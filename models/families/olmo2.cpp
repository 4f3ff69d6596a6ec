#include "gantry/models/described/common_decoder.h"
#include "gantry/models/families/families.h"

namespace gantry::models {
namespace {

// Norms after attention and MLP only, and norms of queries and of keys over all heads together.
DecoderSpec read_both_olmos(ConfigReader& reader, double theta, bool of_each_kind) {
  DecoderSpec spec = read_common(
      reader, {.vocabulary = 50304, .eps = 1e-5, .theta = theta, .padding = 1, .rotary_of_each_kind = of_each_kind});
  const bool bias = reader.flag("attention_bias", false);
  for (LayerSpec& layer : spec.layers) {
    layer.after_attention = layer.after_mlp = layer.attention.qk_norm = spec.norm;
    layer.input = layer.before_mlp = {};
    layer.attention.bias = layer.attention.output_bias = bias;
  }
  spec.names.after_attention = "post_attention_layernorm";
  spec.names.after_mlp = "post_feedforward_layernorm";
  return spec;
}

DecoderSpec read_olmo2(ConfigReader& reader) { return read_both_olmos(reader, 10000, false); }

// OLMo 2 with windows in three of four layers, whose rotary embedding is not scaled. Their base does not follow
// rope_theta.
DecoderSpec read_olmo3(ConfigReader& reader) {
  constexpr double kTheta = 500000;
  DecoderSpec spec = read_both_olmos(reader, kTheta, true);
  spec.rotaries.push_back(window_rotary(reader, spec, kTheta));
  read_windows(reader, spec, reader.size_or_none("sliding_window", 4096),
               [](std::size_t layer) { return (layer + 1) % 4 != 0; });
  for (LayerSpec& layer : spec.layers) layer.attention.rotary = layer.attention.window > 0 ? 1 : 0;
  return spec;
}

}  // namespace

DecoderFamily olmo2_family() { return {.model_type = "olmo2", .architecture = "Olmo2ForCausalLM", .read = read_olmo2}; }

DecoderFamily olmo3_family() { return {.model_type = "olmo3", .architecture = "Olmo3ForCausalLM", .read = read_olmo3}; }

}  // namespace gantry::models
