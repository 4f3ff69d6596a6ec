#include "gantry/models/vit_family.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gantry/models/described/config_keys.h"
#include "gantry/models/described/family_reader.h"
#include "gantry/models/described/keys_of_family.h"
#include "gantry/models/vit.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::models {
namespace {

using nlohmann::json;

constexpr const char* kVit = "vit";
constexpr const char* kVitArchitecture = "ViTForImageClassification";

const auto kReadVit = with_shared_keys(read_vit);

VitConfig vit_config(const json& keys) { return read_keys(keys, kVit, kReadVit); }

json vit_hugging_face_config(const json& keys) {
  json full = full_config_of(keys, kVit, kVitArchitecture, kReadVit);
  fill_labels(full, vit_config(keys).num_labels);
  return full;
}

// {registered path within a layer, path in Hugging Face's files}
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
          .problem_type = [](const json& keys) { return problem_type_of(keys, vit_config(keys).num_labels); },
          .normalise_name = [](const json&, const std::string& name) { return vit_normalise(name); },
          .is_ignored_tensor =
              [](const json&, const std::string& name) {
                return name.starts_with("vit.pooler.") || name.starts_with("pooler.");
              },
          .config_fingerprint = [](const json& keys) { return deciding_keys_of(keys, kVit, kReadVit); },
          .check = [](const json& keys) { return check_keys(*find_family_reader(kVit), keys); },
          .inputs = {"pixel_values"}};
}

}  // namespace gantry::models
