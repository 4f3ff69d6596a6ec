#include "gantry/models/contrastive_family.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "gantry/models/described/contrastive_spec.h"
#include "gantry/models/described/family_reader.h"
#include "gantry/models/described/keys_of_family.h"
#include "gantry/models/vision/contrastive.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::models {
namespace {

using nlohmann::json;
using ReadContrastive = ContrastiveSpec (*)(ConfigReader&);

// CLIP's files store the scale as a number without dimensions.
std::vector<TensorName> contrastive_names(const ContrastiveSpec& spec) {
  std::vector<TensorName> names;
  for (const ParameterShape& parameter : parameter_shapes(spec)) {
    if (spec.is_clip && parameter.name == "logit_scale")
      names.push_back({.name = parameter.name, .hugging_face = "", .parts = {{parameter.name, {{0, 0, {{0, 1}}}}}}});
    else
      names.push_back({parameter.name, parameter.name});
  }
  return names;
}

ModelFamily contrastive_family(const std::string& type, const std::string& architecture, ReadContrastive read_keys_of) {
  const auto read = with_shared_keys(read_keys_of);
  const auto spec = [type, read](const json& keys) { return read_keys(keys, type, read); };
  return {.build = [spec](const json& keys) -> std::shared_ptr<torch::nn::Module> {
            return std::make_shared<ContrastiveImpl>(spec(keys));
          },
          .tensor_names = [spec](const json& keys) { return contrastive_names(spec(keys)); },
          .hugging_face_config = [type, architecture,
                                  read](const json& keys) { return full_config_of(keys, type, architecture, read); },
          .model_type = type,
          .architectures = {architecture},
          .vocabulary_size = [spec](const json& keys) { return spec(keys).vocabulary; },
          .context_length = [spec](const json& keys) { return spec(keys).positions; },
          .task = [](const json&) -> std::string { return "contrast"; },
          .is_ignored_tensor = [](const json&, const std::string& name) { return name.ends_with(".position_ids"); },
          .config_fingerprint = [type, read](const json& keys) { return deciding_keys_of(keys, type, read); },
          .check = [type](const json& keys) { return check_keys(*find_family_reader(type), keys); },
          .is_bidirectional = true,
          .inputs = {"input_ids", "attention_mask", "pixel_values"}};
}

}  // namespace

ModelFamily clip_family() { return contrastive_family("clip", "CLIPModel", read_clip); }

ModelFamily siglip_family() { return contrastive_family("siglip", "SiglipModel", read_siglip); }

}  // namespace gantry::models
