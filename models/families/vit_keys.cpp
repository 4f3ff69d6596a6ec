#include <fmt/format.h>

#include "gantry/models/described/config_keys.h"
#include "gantry/models/described/encoder_configs.h"

namespace gantry::models {
namespace {

std::int64_t read_vit_labels(ConfigReader& reader) {
  const std::int64_t labels = label_count(reader.keys());
  for (const char* key : {"id2label", "num_labels"}) reader.ignore(key);
  reader.decides("labels", labels);
  return labels;
}

}  // namespace

VitConfig read_vit(ConfigReader& reader) {
  VitConfig config;
  config.hidden_size = reader.size("hidden_size", config.hidden_size);
  config.num_hidden_layers = reader.size("num_hidden_layers", config.num_hidden_layers);
  config.num_attention_heads = reader.size("num_attention_heads", config.num_attention_heads);
  config.intermediate_size = reader.size("intermediate_size", config.intermediate_size);
  config.image_size = reader.size("image_size", config.image_size);
  config.patch_size = reader.size("patch_size", config.patch_size);
  config.num_channels = reader.size("num_channels", config.num_channels);
  config.num_labels = read_vit_labels(reader);
  problem_type_of(reader.keys(), config.num_labels);
  config.hidden_act = reader.activation("hidden_act", config.hidden_act);
  config.hidden_dropout_prob = reader.number("hidden_dropout_prob", config.hidden_dropout_prob, 0, 1);
  config.attention_probs_dropout_prob =
      reader.number("attention_probs_dropout_prob", config.attention_probs_dropout_prob, 0, 1);
  config.layer_norm_eps = reader.number("layer_norm_eps", config.layer_norm_eps, 0, 1);
  config.initializer_range = reader.number("initializer_range", config.initializer_range, 0, 100);
  config.qkv_bias = reader.flag("qkv_bias", config.qkv_bias);
  // Keys of parts that a classifier does not have.
  for (const char* key : {"encoder_stride", "pooler_act", "pooler_output_size"}) reader.ignore(key);
  require_multiple_of_heads("hidden_size", config.hidden_size, "num_attention_heads", config.num_attention_heads);
  if (config.patch_size > config.image_size)
    refuse_key("patch_size", config.patch_size, fmt::format("at most image_size {}", config.image_size));
  return config;
}

}  // namespace gantry::models
