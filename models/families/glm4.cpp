#include "gantry/models/described/common_decoder.h"
#include "gantry/models/families/families.h"

namespace gantry::models {
namespace {

// The sizes of both kinds, which have rotary features in adjacent pairs.
CommonDefaults glm4_defaults() {
  return {.vocabulary = 151552, .width = 13696, .layers = 40, .key_heads = 2, .paired = true};
}

// Norms before and after each part, and a fused gate.
void give_glm4_layers(DecoderSpec& spec, bool bias) {
  for (LayerSpec& layer : spec.layers) {
    layer.attention.bias = bias;
    layer.after_attention = layer.after_mlp = spec.norm;
    layer.mlp.fused_gate = true;
  }
  spec.names.after_attention = "post_self_attn_layernorm";
  spec.names.after_mlp = "post_mlp_layernorm";
  spec.names.fused_gate = "mlp.gate_up_proj";
}

DecoderSpec read_glm4(ConfigReader& reader) {
  CommonDefaults missing = glm4_defaults();
  missing.head_size = 128;
  missing.positions = 131072;
  missing.eps = 1.5625e-7;
  missing.rotated = 0.5;
  missing.padding = 151329;
  DecoderSpec spec = read_common(reader, missing);
  give_glm4_layers(spec, reader.flag("attention_bias", true));
  return spec;
}

// The positions have three rows: time, height and width of an image.
DecoderSpec read_glm4v(ConfigReader& reader) {
  CommonDefaults missing = glm4_defaults();
  missing.positions = 32768;
  missing.eps = 1e-5;
  missing.rows = nn::PositionRows::kInSections;
  missing.sections = {8, 12, 12};
  missing.rotated = 1;
  DecoderSpec spec = read_common(reader, missing);
  reader.only("head_dim", spec.hidden / spec.layers.front().attention.heads,
              "the heads of the family share hidden_size");
  reader.only("attention_bias", true, "the projections of the family have biases");
  give_glm4_layers(spec, /*bias=*/true);
  return spec;
}

}  // namespace

DecoderFamily glm4_family() { return {.model_type = "glm4", .architecture = "Glm4ForCausalLM", .read = read_glm4}; }

DecoderFamily glm4v_family() {
  return {.model_type = "glm4v",
          .architecture = "Glm4vForConditionalGeneration",
          .read = read_glm4v,
          .files = {.prefix = "model.language_model.", .other_parts = {"visual"}},
          .harmless = {"image_end_token_id", "image_start_token_id", "image_token_id", "video_end_token_id",
                       "video_start_token_id", "video_token_id", "vision_config"},
          .small = {{"text_config", small_keys()}},
          .tower = TowerKeys{.text_types = {"glm4v_text"}}};
}

}  // namespace gantry::models
