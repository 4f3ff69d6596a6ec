#include <fmt/format.h>

#include "gantry/models/described/common_decoder.h"
#include "gantry/models/described/config_keys.h"
#include "gantry/models/described/mixers/gated_delta.h"
#include "gantry/models/families/families.h"

namespace gantry::models {
namespace {

using nlohmann::json;

// By layer_types or, without it, every fourth layer; the last one if there are fewer layers.
std::vector<bool> attending_olmo_layers(ConfigReader& reader, std::size_t layers) {
  const auto types = reader.words("layer_types", layers, {"full_attention", "linear_attention"});
  std::vector<bool> attends;
  for (std::size_t layer = 0; layer < layers; ++layer)
    attends.push_back(types.empty() ? layer % 4 == 3 : types[layer] == "full_attention");
  if (types.empty() && layers < 4) attends.back() = true;
  reader.decides("attending_layers", attends);
  return attends;
}

GatedDeltaSizes read_olmo_delta(ConfigReader& reader, const DecoderSpec& spec) {
  const std::int64_t heads = spec.layers.front().attention.heads;
  GatedDeltaSizes sizes{.key_heads = reader.size("linear_num_key_heads", heads),
                        .value_heads = reader.size("linear_num_value_heads", heads),
                        .kernel = reader.size("linear_conv_kernel_dim", 4),
                        .eps = 1e-5,
                        .projections = GatedDeltaSizes::Projections::kSeparate,
                        .negative = reader.flag("linear_allow_neg_eigval", true)};
  sizes.key_size = reader.size("linear_key_head_dim", 3 * spec.hidden / (4 * sizes.key_heads));
  sizes.value_size = reader.size("linear_value_head_dim", 2 * sizes.key_size);
  if (sizes.value_heads % sizes.key_heads != 0)
    refuse_key("linear_num_value_heads", sizes.value_heads,
               fmt::format("a multiple of linear_num_key_heads {}", sizes.key_heads));
  return sizes;
}

// The attention of a file whose base is null has no rotary embedding.
bool has_rotary_base(const json& keys) {
  const json mapping = keys.value("rope_parameters", json::object());
  const json& stated = mapping.is_object() && mapping.contains("rope_theta") ? mapping : keys;
  return !stated.contains("rope_theta") || !stated["rope_theta"].is_null();
}

// Layers with attention are those of OLMo 3 without windows, and have norms behind each part. Layers with gated delta
// networks have norms before each part.
DecoderSpec read_olmo_hybrid(ConfigReader& reader) {
  DecoderSpec spec = read_common(reader, {.vocabulary = 100352,
                                          .hidden = 3840,
                                          .width = 11008,
                                          .layers = 32,
                                          .heads = 30,
                                          .positions = 65536,
                                          .padding = 100277});
  require_silu(spec);
  const bool bias = reader.flag("attention_bias", false), turns = has_rotary_base(reader.keys());
  reader.decides("rotary", turns);
  const auto attends = attending_olmo_layers(reader, spec.layers.size());
  const auto mixer = std::make_shared<const GatedDelta>(read_olmo_delta(reader, spec));
  for (std::size_t index = 0; index < spec.layers.size(); ++index) {
    LayerSpec& layer = spec.layers[index];
    if (!turns) layer.attention.rotary = -1;
    if (!attends[index]) {
      layer.mixer = mixer;
      continue;
    }
    layer.after_attention = layer.after_mlp = layer.attention.qk_norm = spec.norm;
    layer.input = layer.before_mlp = {};
    layer.attention.bias = layer.attention.output_bias = bias;
  }
  spec.names.input = "attention_layer_norm";
  spec.names.before_mlp = "feedforward_layer_norm";
  spec.names.after_attention = "post_attention_layernorm";
  spec.names.after_mlp = "post_feedforward_layernorm";
  return spec;
}

}  // namespace

DecoderFamily olmo_hybrid_family() {
  DecoderFamily family{
      .model_type = "olmo_hybrid",
      .architecture = "OlmoHybridForCausalLM",
      .read = read_olmo_hybrid,
      .harmless = {"linear_a_log_max", "linear_a_log_min", "linear_dt_init_floor", "linear_dt_max", "linear_dt_min"},
      .small = small_keys()};
  // transformers has other names of norms in memory, and writes one of them as its namesake in the other kind of
  // layers.
  family.files.other_names = {{"attention_layer_norm", "input_layernorm"},
                              {"feedforward_layer_norm", "post_attention_layernorm"},
                              {"post_attention_layernorm", "feedforward_layer_norm"}};
  family.files.renamed = {{"linear_attn.decay.A_log", "linear_attn.A_log"},
                          {"linear_attn.decay.dt_bias", "linear_attn.dt_bias"}};
  return family;
}

}  // namespace gantry::models
