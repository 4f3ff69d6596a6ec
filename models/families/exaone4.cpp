#include "gantry/models/described/common_decoder.h"
#include "gantry/models/described/config_keys.h"
#include "gantry/models/families/families.h"

namespace gantry::models {
namespace {

// The number of layers from one without a window to the next. Files with a word such as "LLLG" also have layer_types.
std::size_t window_period(ConfigReader& reader) {
  reader.ignore("sliding_window_pattern");
  const nlohmann::json pattern = reader.keys().value("sliding_window_pattern", nlohmann::json());
  if (!pattern.is_string()) return static_cast<std::size_t>(size_key(reader.keys(), "sliding_window_pattern", 4));
  if (!reader.has("layer_types")) refuse_key("sliding_window_pattern", pattern, "a number, or the key layer_types");
  return 1;
}

// Norms after attention and MLP only, and norms of queries and keys per head. Layers without a window have no
// positions.
DecoderSpec read_exaone4(ConfigReader& reader) {
  DecoderSpec spec = read_common(reader, {.vocabulary = 102400, .width = 16384, .key_heads = 32, .eps = 1e-5});
  reader.only("reorder_qk_norm", true, "transformers has no other exaone4");
  const std::int64_t window = reader.size_or_none("sliding_window", 4096);
  const std::size_t period = window > 0 ? window_period(reader) : 1;
  reader.ignore("sliding_window_pattern");
  read_windows(reader, spec, window, [&](std::size_t layer) { return (layer + 1) % period != 0; });
  for (LayerSpec& layer : spec.layers) {
    layer.after_attention = layer.after_mlp = layer.attention.head_norm = spec.norm;
    layer.input = layer.before_mlp = {};
    if (window > 0 && layer.attention.window == 0) layer.attention.rotary = -1;
  }
  spec.names.after_attention = "post_attention_layernorm";
  spec.names.after_mlp = "post_feedforward_layernorm";
  return spec;
}

}  // namespace

DecoderFamily exaone4_family() {
  return {.model_type = "exaone4", .architecture = "Exaone4ForCausalLM", .read = read_exaone4};
}

}  // namespace gantry::models
