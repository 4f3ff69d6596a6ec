#include "gantry/models/vit_family.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gantry/models/described/config_keys.h"
#include "gantry/models/described/keys_of_family.h"
#include "gantry/models/vit.h"
#include "gantry/nn/activation_names.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::models {
namespace {

using nlohmann::json;

constexpr const char* kVit = "vit";
constexpr const char* kVitArchitecture = "ViTForImageClassification";

std::int64_t vit_labels(ConfigReader& reader) {
  const std::int64_t labels = label_count(reader.keys());
  for (const char* key : {"id2label", "num_labels"}) reader.ignore(key);
  reader.decides("labels", labels);
  return labels;
}

VitConfig read_vit(ConfigReader& reader) {
  VitConfig config;
  reader.only("model_type", kVit);
  reader.only("architectures", json::array({kVitArchitecture}));
  reader.only("problem_type", "single_label_classification");
  config.hidden_size = reader.size("hidden_size", config.hidden_size);
  config.num_hidden_layers = reader.size("num_hidden_layers", config.num_hidden_layers);
  config.num_attention_heads = reader.size("num_attention_heads", config.num_attention_heads);
  config.intermediate_size = reader.size("intermediate_size", config.intermediate_size);
  config.image_size = reader.size("image_size", config.image_size);
  config.patch_size = reader.size("patch_size", config.patch_size);
  config.num_channels = reader.size("num_channels", config.num_channels);
  config.num_labels = vit_labels(reader);
  config.hidden_act = reader.choice("hidden_act", config.hidden_act, nn::activation_names());
  config.hidden_dropout_prob = reader.number("hidden_dropout_prob", config.hidden_dropout_prob, 0, 1);
  config.attention_probs_dropout_prob =
      reader.number("attention_probs_dropout_prob", config.attention_probs_dropout_prob, 0, 1);
  config.layer_norm_eps = reader.number("layer_norm_eps", config.layer_norm_eps, 0, 1);
  config.initializer_range = reader.number("initializer_range", config.initializer_range, 0, 100);
  config.qkv_bias = reader.flag("qkv_bias", config.qkv_bias);
  // Of parts that a classifier does not have.
  for (const char* key : {"encoder_stride", "pooler_act", "pooler_output_size"}) reader.ignore(key);
  if (config.hidden_size % config.num_attention_heads != 0)
    refuse_key("hidden_size", config.hidden_size,
               fmt::format("a multiple of num_attention_heads {}", config.num_attention_heads));
  if (config.patch_size > config.image_size)
    refuse_key("patch_size", config.patch_size, fmt::format("at most image_size {}", config.image_size));
  return config;
}

VitConfig vit_config(const json& keys) { return read_keys(keys, kVit, read_vit); }

json vit_hugging_face_config(const json& keys) {
  json whole = whole_config_of(keys, kVit, kVitArchitecture, read_vit);
  ConfigReader reader(keys, kVit);
  fill_labels(whole, read_vit(reader).num_labels);
  return whole;
}

// Ours to Hugging Face's, of one layer.
const std::vector<std::pair<std::string, std::string>> kVitLayerNames = {
    {"attention.query", "attention.attention.query"}, {"attention.key", "attention.attention.key"},
    {"attention.value", "attention.attention.value"}, {"attention.output", "attention.output.dense"},
    {"layernorm_before", "layernorm_before"},         {"layernorm_after", "layernorm_after"},
    {"intermediate", "intermediate.dense"},           {"output", "output.dense"}};

std::vector<TensorName> vit_tensor_names(const json& keys) {
  const VitConfig config = vit_config(keys);
  std::vector<TensorName> names;
  for (const std::string part :
       {"cls_token", "position_embeddings", "patch_embeddings.projection.weight", "patch_embeddings.projection.bias"})
    names.push_back({"embeddings." + part, "vit.embeddings." + part});
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer)
    for (const auto& [ours, theirs] : kVitLayerNames) {
      const std::string at = fmt::format("layers.{}.{}.", layer, ours);
      const std::string there = fmt::format("vit.encoder.layer.{}.{}.", layer, theirs);
      const bool has_bias = config.qkv_bias || theirs.find("attention.attention") == std::string::npos;
      names.push_back({at + "weight", there + "weight"});
      if (has_bias) names.push_back({at + "bias", there + "bias"});
    }
  for (const std::string part : {"weight", "bias"}) {
    names.push_back({"layernorm." + part, "vit.layernorm." + part});
    names.push_back({.name = "classifier." + part, .hugging_face = "classifier." + part, .new_allowed = true});
  }
  return names;
}

// Files of the bare model have no prefix.
std::string vit_normalise(const std::string& name) {
  for (const char* part : {"embeddings.", "encoder.", "layernorm."})
    if (name.starts_with(part)) return "vit." + name;
  return name;
}

}  // namespace

ModelFamily vit_family() {
  return {.build = [](const json& keys) -> std::shared_ptr<torch::nn::Module> {
            return std::make_shared<VitImpl>(vit_config(keys));
          },
          .tensor_names = vit_tensor_names,
          .hugging_face_config = vit_hugging_face_config,
          .model_type = kVit,
          .architectures = {kVitArchitecture},
          .vocabulary_size = [](const json& keys) { return vit_config(keys).num_labels; },
          .context_length = [](const json& keys) { return vit_config(keys).tokens(); },
          .task = [](const json&) -> std::string { return "images"; },
          .normalise_name = [](const json&, const std::string& name) { return vit_normalise(name); },
          .is_ignored_tensor =
              [](const json&, const std::string& name) {
                return name.starts_with("vit.pooler.") || name.starts_with("pooler.");
              },
          .config_fingerprint = [](const json& keys) { return deciding_keys_of(keys, kVit, read_vit); },
          .check = [](const json& keys) { vit_config(keys); },
          .inputs = {"pixel_values"}};
}

}  // namespace gantry::models
