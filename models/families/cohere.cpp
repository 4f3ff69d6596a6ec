#include "gantry/models/described/common_decoder.h"
#include "gantry/models/described/config_keys.h"
#include "gantry/models/families/families.h"

namespace gantry::models {
namespace {

// Attention and MLP in parallel after one norm without a bias; rotary features in adjacent pairs; scaled
// logits.
DecoderSpec read_both_coheres(ConfigReader& reader, double theta) {
  DecoderSpec spec = read_common(reader, {.vocabulary = 256000,
                                          .hidden = 8192,
                                          .width = 22528,
                                          .layers = 40,
                                          .heads = 64,
                                          .positions = 8192,
                                          .eps = 1e-5,
                                          .theta = theta,
                                          .padding = 0,
                                          .tied = true,
                                          .eps_key = "layer_norm_eps",
                                          .norm = {.kind = NormSpec::Kind::kLayer, .bias = false},
                                          .paired = true});
  const bool bias = reader.flag("attention_bias", false);
  for (LayerSpec& layer : spec.layers) {
    layer.attention.bias = layer.attention.output_bias = bias;
    layer.parallel = true;
    layer.before_mlp = {};
  }
  spec.logit_scale = reader.number("logit_scale", 0.0625, 1e-9, 1e6);
  return spec;
}

DecoderSpec read_cohere(ConfigReader& reader) {
  DecoderSpec spec = read_both_coheres(reader, 500000);
  if (reader.flag("use_qk_norm", false))
    for (LayerSpec& layer : spec.layers) layer.attention.per_head_norm = spec.norm;
  return spec;
}

// Three of four layers have a sliding window. The fourth one sees all tokens, and has no rotary embedding.
DecoderSpec read_cohere2(ConfigReader& reader) {
  DecoderSpec spec = read_both_coheres(reader, 10000);
  const std::int64_t window = reader.size_or_none("sliding_window", 4096);
  reader.ignore("sliding_window_pattern");  // in older files, which have no layer_types
  const std::int64_t period = size_key(reader.keys(), "sliding_window_pattern", 4);
  read_windows(reader, spec, window, [&](std::size_t layer) { return (layer + 1) % period != 0; });
  for (LayerSpec& layer : spec.layers)
    if (layer.attention.window == 0) layer.attention.rotary = -1;
  return spec;
}

}  // namespace

DecoderFamily cohere_family() {
  return {.model_type = "cohere", .architecture = "CohereForCausalLM", .read = read_cohere};
}

DecoderFamily cohere2_family() {
  return {
      .model_type = "cohere2",
      .architecture = "Cohere2ForCausalLM",
      .read = read_cohere2,
      .harmless = {"cache_implementation", "order_of_interleaved_layers", "position_embedding_type", "rotary_pct",
                   "use_embedding_sharing", "use_gated_activation", "use_parallel_block", "use_parallel_embedding"}};
}

}  // namespace gantry::models
