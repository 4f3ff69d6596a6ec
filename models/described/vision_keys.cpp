#include "gantry/models/described/vision_keys.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gantry/models/described/config_keys.h"
#include "gantry/models/described/decoder_family.h"

namespace gantry::models {
namespace {

constexpr const char* kVisionConfig = "vision_config";

void read_tower_keys(ConfigReader& keys, VisionSpec& vision) {
  read_tower_sizes(keys, vision.tower);
  vision.image_size = keys.size("image_size", vision.image_size);
  vision.patch = keys.size("patch_size", vision.patch);
  vision.channels = keys.size("num_channels", vision.channels);
  // Keys of parts that these models do not have.
  for (const char* key : {"projection_dim", "vision_use_head", "vocab_size"}) keys.ignore(key);
  if (vision.patch > vision.image_size)
    refuse_key("patch_size", vision.patch, fmt::format("at most image_size {}", vision.image_size));
}

// Reads the mapping by `read`, and records its keys.
template <class Read>
VisionSpec read_vision_config(ConfigReader& reader, const std::string& model_type, const Read& read) {
  const nlohmann::json mapping = reader.mapping(kVisionConfig);
  ConfigReader keys(mapping, model_type);
  keys.only("model_type", model_type);
  const VisionSpec vision = read(keys);
  reader.decides(kVisionConfig, keys.deciding());
  for (const auto& key : keys.unknown()) reader.pass_over(kVisionConfig + ("." + key));
  return vision;
}

void require_vision_config(const ConfigReader& reader) {
  if (!reader.has(kVisionConfig))
    refuse_key(kImageEncoder, true, "false for a model without vision_config",
               "the encoder has its keys in vision_config");
}

// The row of a patch rotates half of the features of a head, and the column rotates the other half.
void require_turned_halves(const TowerSpec& tower) {
  if (tower.hidden % (4 * tower.heads) != 0)
    refuse_key("hidden_size", tower.hidden,
               fmt::format("a multiple of {}, so that rows and columns turn half of the features of {} heads each",
                           4 * tower.heads, tower.heads));
}

// Leaves out the layers after vision_feature_layer. The state before the first layer is number 0, and -1 is the state
// after the last one.
void keep_used_layers(ConfigReader& reader, std::int64_t missing, VisionSpec& vision) {
  const std::int64_t states = vision.tower.layers + 1;
  const std::int64_t layer = reader.size("vision_feature_layer", missing, -states);
  if (layer >= states)
    refuse_key("vision_feature_layer", layer, fmt::format("at most num_hidden_layers {}", vision.tower.layers));
  if (layer == 0 || layer == -states)
    refuse_key("vision_feature_layer", layer, "a layer of the encoder, and not the state before the first one");
  vision.tower.layers = layer < 0 ? states + layer : layer;
}

}  // namespace

void read_tower_sizes(ConfigReader& keys, TowerSpec& tower) {
  tower.hidden = keys.size("hidden_size", tower.hidden);
  tower.width = keys.size("intermediate_size", tower.width);
  tower.layers = keys.size("num_hidden_layers", tower.layers);
  tower.heads = keys.size("num_attention_heads", tower.heads);
  tower.eps = keys.number("layer_norm_eps", tower.eps, 0, 1);
  tower.activation = keys.activation("hidden_act", tower.activation);
  keys.only("attention_dropout", 0.0, "Gantry has no dropout in image encoders");
  for (const char* key : {"dtype", "torch_dtype", "initializer_factor", "initializer_range"}) keys.ignore(key);
  require_multiple_of_heads("hidden_size", tower.hidden, "num_attention_heads", tower.heads);
}

VisionSpec read_clip_tower(ConfigReader& reader) {
  VisionSpec vision = read_vision_config(reader, "clip_vision_model", [](ConfigReader& keys) {
    VisionSpec clip{.tower = {.eps = 1e-5, .activation = "quick_gelu"}, .patch = 32};
    read_tower_keys(keys, clip);
    return clip;
  });
  vision.class_token = true;
  return vision;
}

VisionSpec read_siglip_tower(ConfigReader& reader) {
  return read_vision_config(reader, "siglip_vision_model", [](ConfigReader& keys) {
    VisionSpec vision;
    read_tower_keys(keys, vision);
    return vision;
  });
}

VisionSpec read_siglip_vision(ConfigReader& reader) {
  require_vision_config(reader);
  return read_siglip_tower(reader);
}

namespace {

std::vector<std::int64_t> read_full_layers(ConfigReader& keys, std::int64_t layers) {
  keys.ignore("fullatt_block_indexes");
  if (!keys.has("fullatt_block_indexes")) return GridTowerSpec().full_layers;
  std::vector<std::int64_t> full;
  const nlohmann::json& list = keys.keys()["fullatt_block_indexes"];
  for (const auto& index : list.is_array() ? list : nlohmann::json::array({list})) {
    if (!index.is_number_integer() || index < 0 || index >= layers)
      refuse_key("fullatt_block_indexes", list, fmt::format("a list of numbers below depth {}", layers));
    full.push_back(index);
  }
  keys.decides("full_layers", full);
  return full;
}

VisionSpec read_grid_keys(ConfigReader& keys) {
  VisionSpec vision{.tower = {.hidden = 3584, .width = 3420, .layers = 32, .heads = 16, .activation = "silu"},
                    .patch = 14,
                    .grid_tower = GridTowerSpec()};
  TowerSpec& tower = vision.tower;
  GridTowerSpec& grid = *vision.grid_tower;
  tower.layers = keys.size("depth", tower.layers);
  tower.hidden = keys.size("hidden_size", tower.hidden);
  tower.width = keys.size("intermediate_size", tower.width);
  tower.heads = keys.size("num_heads", tower.heads);
  tower.activation = keys.activation("hidden_act", tower.activation);
  vision.channels = keys.size("in_channels", keys.size("in_chans", 3));
  vision.patch = keys.size("patch_size", vision.patch);
  grid.merge = keys.size("spatial_merge_size", grid.merge);
  grid.frames = keys.size("temporal_patch_size", grid.frames);
  grid.window = keys.size("window_size", grid.window);
  grid.outputs = keys.size("out_hidden_size", grid.outputs);
  grid.full_layers = read_full_layers(keys, tower.layers);
  for (const char* key : {"dtype", "torch_dtype", "initializer_range", "rope_parameters", "spatial_patch_size",
                          "tokens_per_second"})  // the last one is for videos
    keys.ignore(key);
  require_turned_halves(tower);
  return vision;
}

}  // namespace

VisionSpec read_qwen2_5_vision(ConfigReader& reader, const DecoderSpec& text) {
  require_vision_config(reader);
  const nlohmann::json mapping = reader.keys()[kVisionConfig];
  const std::string type = mapping.is_object() ? mapping.value("model_type", "qwen2_5_vl") : "qwen2_5_vl";
  VisionSpec vision = read_vision_config(reader, type == "qwen2_5_vl_vision" ? type : "qwen2_5_vl",
                                         [](ConfigReader& keys) { return read_grid_keys(keys); });
  vision.image_token = reader.size("image_token_id", 151655, 0);
  if (vision.grid_tower->outputs != text.hidden)
    refuse_key("vision_config.out_hidden_size", vision.grid_tower->outputs,
               fmt::format("{}, the hidden_size of the decoder", text.hidden));
  return vision;
}

VisionSpec read_llava_vision(ConfigReader& reader, const DecoderSpec& /*text*/) {
  require_vision_config(reader);
  VisionSpec vision = read_clip_tower(reader);
  vision.final_norm = false;
  vision.projector = VisionSpec::Projector::kMlp;
  vision.keeps_class_token = reader.choice("vision_feature_select_strategy", "default", {"default", "full"}) == "full";
  keep_used_layers(reader, -2, vision);
  vision.projector_activation = reader.activation("projector_hidden_act", "gelu");
  vision.projector_bias = reader.flag("multimodal_projector_bias", true);
  vision.image_token = reader.size("image_token_index", 32000, 0);
  return vision;
}

namespace {

// Older files have the base outside of rope_parameters.
double read_axial_theta(ConfigReader& keys) {
  const nlohmann::json nested = keys.mapping(keys.has("rope_parameters") ? "rope_parameters" : "rope_scaling");
  choice_key(nested, "rope_type", "axial", {"axial", "default"});
  keys.ignore("rope_theta");
  const double theta = number_key(keys.keys(), "rope_theta", 10000, 1, 1e12);
  const double used = number_key(nested, "rope_theta", theta, 1, 1e12);
  keys.decides("theta", used);
  return used;
}

VisionSpec read_pixtral_keys(ConfigReader& keys) {
  VisionSpec vision{
      .tower = {.hidden = 1024, .width = 4096, .layers = 24, .heads = 16, .eps = 1e-5, .activation = "gelu"},
      .pixtral = PixtralSpec()};
  TowerSpec& tower = vision.tower;
  tower.hidden = keys.size("hidden_size", tower.hidden);
  tower.width = keys.size("intermediate_size", tower.width);
  tower.layers = keys.size("num_hidden_layers", tower.layers);
  tower.heads = keys.size("num_attention_heads", tower.heads);
  tower.activation = keys.activation("hidden_act", tower.activation);
  vision.patch = keys.size("patch_size", vision.patch);
  vision.channels = keys.size("num_channels", vision.channels);
  vision.pixtral->theta = read_axial_theta(keys);
  keys.only("attention_dropout", 0.0, "Gantry has no dropout in image encoders");
  for (const char* key : {"dtype", "torch_dtype", "initializer_range", "image_size", "vocab_size"}) keys.ignore(key);
  require_turned_halves(tower);
  keys.only("head_dim", tower.head_size(), "the heads of the tower share hidden_size");
  return vision;
}

}  // namespace

VisionSpec read_mistral3_vision(ConfigReader& reader, const DecoderSpec& text) {
  require_vision_config(reader);
  VisionSpec vision = read_vision_config(reader, "pixtral", [](ConfigReader& keys) { return read_pixtral_keys(keys); });
  vision.pixtral->merge = reader.size("spatial_merge_size", 2);
  vision.pixtral->projector_eps = text.norm.eps;
  keep_used_layers(reader, -1, vision);
  vision.projector_activation = reader.activation("projector_hidden_act", "gelu");
  vision.projector_bias = reader.flag("multimodal_projector_bias", false);
  vision.image_token = reader.size("image_token_index", 10, 0);
  return vision;
}

}  // namespace gantry::models
