#include "gantry/models/described/vision_keys.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gantry/models/described/config_keys.h"
#include "gantry/models/described/decoder_family.h"

namespace gantry::models {
namespace {

constexpr const char* kVisionConfig = "vision_config";

void read_tower_keys(ConfigReader& keys, VisionSpec& vision) {
  TowerSpec& tower = vision.tower;
  tower.hidden = keys.size("hidden_size", tower.hidden);
  tower.width = keys.size("intermediate_size", tower.width);
  tower.layers = keys.size("num_hidden_layers", tower.layers);
  tower.heads = keys.size("num_attention_heads", tower.heads);
  tower.eps = keys.number("layer_norm_eps", tower.eps, 0, 1);
  tower.activation = keys.activation("hidden_act", tower.activation);
  keys.only("attention_dropout", 0.0, "Gantry has no dropout in image encoders");
  vision.image_size = keys.size("image_size", vision.image_size);
  vision.patch = keys.size("patch_size", vision.patch);
  vision.channels = keys.size("num_channels", vision.channels);
  // Keys of initial values, and of parts that these models do not have.
  for (const char* key : {"dtype", "torch_dtype", "initializer_factor", "initializer_range", "projection_dim",
                          "vision_use_head", "vocab_size"})
    keys.ignore(key);
  require_multiple_of_heads("hidden_size", tower.hidden, "num_attention_heads", tower.heads);
  if (vision.patch > vision.image_size)
    refuse_key("patch_size", vision.patch, fmt::format("at most image_size {}", vision.image_size));
}

// Reads the mapping by `read`, and records its keys.
template <class Read>
VisionSpec read_vision_config(ConfigReader& reader, const std::string& model_type, const Read& read) {
  const nlohmann::json mapping = reader.mapping(kVisionConfig);
  if (!reader.has(kVisionConfig))
    refuse_key(kImageEncoder, true, "false for a model without vision_config", "the keys of the encoder are there");
  ConfigReader keys(mapping, model_type);
  keys.only("model_type", model_type);
  const VisionSpec vision = read(keys);
  reader.decides(kVisionConfig, keys.deciding());
  for (const auto& key : keys.unknown()) reader.pass_over(kVisionConfig + ("." + key));
  return vision;
}

}  // namespace

VisionSpec read_siglip_vision(ConfigReader& reader) {
  return read_vision_config(reader, "siglip_vision_model", [](ConfigReader& keys) {
    VisionSpec vision;
    read_tower_keys(keys, vision);
    return vision;
  });
}

VisionSpec read_llava_vision(ConfigReader& reader) {
  VisionSpec vision = read_vision_config(reader, "clip_vision_model", [](ConfigReader& keys) {
    VisionSpec clip{.tower = {.eps = 1e-5, .activation = "quick_gelu"}, .patch = 32};
    read_tower_keys(keys, clip);
    return clip;
  });
  vision.class_token = true;
  vision.final_norm = false;
  vision.projector = VisionSpec::Projector::kMlp;
  vision.keeps_class_token = reader.choice("vision_feature_select_strategy", "default", {"default", "full"}) == "full";
  // The state before the first layer is number 0, and -1 is the state after the last one.
  const std::int64_t states = vision.tower.layers + 1;
  const std::int64_t layer = reader.size("vision_feature_layer", -2, -states);
  if (layer >= states)
    refuse_key("vision_feature_layer", layer, fmt::format("at most num_hidden_layers {}", vision.tower.layers));
  vision.tower.layers = layer < 0 ? states + layer : layer;
  vision.projector_activation = reader.activation("projector_hidden_act", "gelu");
  vision.projector_bias = reader.flag("multimodal_projector_bias", true);
  vision.image_token = reader.size("image_token_index", 32000, 0);
  return vision;
}

}  // namespace gantry::models
