#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gantry/models/described/config_keys.h"
#include "gantry/models/described/contrastive_spec.h"
#include "gantry/models/described/vision_keys.h"

namespace gantry::models {
namespace {

// Reads the mapping of the text tower by `read`, and records its keys.
template <class Read>
void read_text_config(ConfigReader& reader, const std::string& model_type, const Read& read) {
  ConfigReader keys(reader.mapping(kTextConfig), model_type);
  keys.only("model_type", model_type);
  read(keys);
  reader.decides(kTextConfig, keys.deciding());
  for (const auto& key : keys.unknown()) reader.pass_over(kTextConfig + ("." + key));
}

void read_text_keys(ConfigReader& keys, ContrastiveSpec& spec) {
  read_tower_sizes(keys, spec.text);
  spec.vocabulary = keys.size("vocab_size", spec.vocabulary);
  spec.positions = keys.size("max_position_embeddings", spec.positions);
  for (const char* key : {"bos_token_id", "pad_token_id", "projection_dim"}) keys.ignore(key);
}

// Older files repeat values of the two mappings, which transformers then uses.
void refuse_other_values(const ConfigReader& reader, const std::string& part) {
  const std::string repeated = part + "_dict";
  const nlohmann::json none = nlohmann::json::object(), values = reader.keys().value(part, none),
                       others = reader.keys().value(repeated, none);
  if (!values.is_object() || !others.is_object()) return;
  for (const auto& [key, other] : others.items())
    if (!values.contains(key) || values[key] != other)
      refuse_key(repeated + "." + key, other, "the value of " + part + "." + key, "the file contradicts itself");
}

void ignore_shared(ConfigReader& reader) {
  for (const char* part : {"text_config", "vision_config"}) refuse_other_values(reader, part);
  for (const char* key : {"initializer_factor", "initializer_range", "text_config_dict", "vision_config_dict"})
    reader.ignore(key);
}

}  // namespace

ContrastiveSpec read_clip(ConfigReader& reader) {
  ContrastiveSpec spec{.family = "clip", .text = {.hidden = 512, .width = 2048, .heads = 8}};
  spec.text.eps = 1e-5;
  spec.text.activation = "quick_gelu";
  read_text_config(reader, "clip_text_model", [&](ConfigReader& keys) {
    read_text_keys(keys, spec);
    spec.end_token = keys.token("eos_token_id", spec.end_token, spec.vocabulary);
    keys.decides("end", spec.end_token);
  });
  spec.vision = read_clip_tower(reader);
  spec.width = reader.size("projection_dim", 512);
  spec.initial_scale = reader.number("logit_scale_init_value", spec.initial_scale, -100, 100);
  ignore_shared(reader);
  return spec;
}

ContrastiveSpec read_siglip(ConfigReader& reader) {
  ContrastiveSpec spec{.family = "siglip", .is_clip = false, .vocabulary = 32000, .positions = 64, .initial_scale = 0};
  read_text_config(reader, "siglip_text_model", [&](ConfigReader& keys) {
    read_text_keys(keys, spec);
    keys.ignore("eos_token_id");
    spec.width = keys.size("projection_size", spec.text.hidden);
  });
  spec.vision = read_siglip_tower(reader);
  if (const auto& images = reader.keys().value("vision_config", nlohmann::json::object());
      images.is_object() && images.value("vision_use_head", nlohmann::json(true)) != true)
    refuse_key("vision_config.vision_use_head", false, "true", "the loss compares the results of the head");
  if (spec.width != spec.vision.tower.hidden)
    refuse_key("text_config.projection_size", spec.width,
               fmt::format("vision_config.hidden_size {}, the width of the images' results", spec.vision.tower.hidden));
  ignore_shared(reader);
  return spec;
}

}  // namespace gantry::models
