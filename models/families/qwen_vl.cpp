#include <nlohmann/json.hpp>

#include "gantry/models/described/common_decoder.h"
#include "gantry/models/described/vision_keys.h"
#include "gantry/models/families/families.h"

namespace gantry::models {
namespace {

// Qwen 2 whose rotary positions have three rows: time, height and width of an image.
DecoderSpec read_qwen2_vl(ConfigReader& reader) {
  DecoderSpec spec = read_common(reader, {.vocabulary = 152064,
                                          .hidden = 8192,
                                          .width = 29568,
                                          .layers = 80,
                                          .heads = 64,
                                          .key_heads = 8,
                                          .positions = 32768,
                                          .eps = 1e-5,
                                          .theta = 1000000,
                                          .rows = nn::PositionRows::kInSections});
  reader.only("head_dim", spec.hidden / spec.layers.front().attention.heads,
              "the heads of the family share hidden_size");
  for (LayerSpec& layer : spec.layers) layer.attention.bias = true;
  read_qwen_windows(reader, spec, 80);
  return spec;
}

// Qwen 3 whose rotary positions have three rows.
DecoderSpec read_qwen3_vl(ConfigReader& reader) {
  DecoderSpec spec = read_common(reader, {.vocabulary = 151936,
                                          .width = 22016,
                                          .key_heads = 32,
                                          .head_size = 128,
                                          .positions = 128000,
                                          .theta = 500000,
                                          .rows = nn::PositionRows::kInterleaved,
                                          .sections = {24, 20, 20}});
  const bool bias = reader.flag("attention_bias", false);
  for (LayerSpec& layer : spec.layers) {
    layer.attention.bias = layer.attention.output_bias = bias;
    layer.attention.head_norm = layer.input;
  }
  return spec;
}

// The text decoder has no prefix of its own in published files of Qwen 2 and 2.5.
DecoderFamily qwen_vl_family(const std::string& model_type, const std::string& architecture) {
  return {.model_type = model_type,
          .architecture = architecture,
          .read = read_qwen2_vl,
          .files = {.renamed = {}, .transposed = {}, .by_row = {}, .other_parts = {"visual"}},
          .harmless = {"image_token_id", "video_token_id", "vision_config", "vision_end_token_id",
                       "vision_start_token_id", "vision_token_id"},
          .tower = TowerKeys{.text_types = {model_type + "_text"}, .may_be_flat = true}};
}

}  // namespace

DecoderFamily qwen2_vl_family() { return qwen_vl_family("qwen2_vl", "Qwen2VLForConditionalGeneration"); }

DecoderFamily qwen2_5_vl_family() {
  DecoderFamily family = qwen_vl_family("qwen2_5_vl", "Qwen2_5_VLForConditionalGeneration");
  family.read_vision = read_qwen2_5_vision;
  family.image_entries = {"image_grid_thw", "mm_token_type_ids"};
  return family;
}

DecoderFamily qwen3_vl_family() {
  DecoderFamily family = qwen_vl_family("qwen3_vl", "Qwen3VLForConditionalGeneration");
  family.read = read_qwen3_vl;
  family.files.prefix = "model.language_model.";
  family.small = {{"text_config", small_keys()}};
  family.tower->may_be_flat = false;
  return family;
}

}  // namespace gantry::models
