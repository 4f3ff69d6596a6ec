#include "gantry/models/model_family.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "gantry/models/bart_family.h"
#include "gantry/models/bert_family.h"
#include "gantry/models/contrastive_family.h"
#include "gantry/models/decoder_model_family.h"
#include "gantry/models/described/config_keys.h"
#include "gantry/models/described/family_reader.h"
#include "gantry/models/modern_bert_family.h"
#include "gantry/models/t5_family.h"
#include "gantry/models/vit_family.h"
#include "gantry/models/whisper_family.h"

namespace gantry::models {

std::string check_model_keys(const ModelFamily& family, const nlohmann::json& config, const std::string& rule,
                             const nlohmann::json& file, const std::string& path) {
  if (!config.is_object() || (!family.check && family.keys.empty())) return "";
  const auto judge = [&](const CheckedKeys& checked) {
    return judge_unknown_keys(checked, family.model_type, rule, file, path);
  };
  if (family.check) return judge_before_values(family.check, config, judge);
  CheckedKeys checked{.known = family.keys, .unknown = {}};
  checked.known.insert(checked.known.end(), common_keys().begin(), common_keys().end());
  for (const auto& [key, value] : config.items())
    if (std::find(checked.known.begin(), checked.known.end(), key) == checked.known.end())
      checked.unknown.push_back(key);
  return judge(checked);
}

std::vector<TensorName> names_of_parameters(const torch::nn::Module& model) {
  std::vector<TensorName> names;
  std::map<const void*, std::size_t> known;  // index in `names`
  for (const auto& parameter : model.named_parameters()) {
    const auto [found, is_new] = known.emplace(parameter.value().unsafeGetTensorImpl(), names.size());
    if (is_new)
      names.push_back({parameter.key(), parameter.key()});
    else
      names[found->second].copies.push_back(parameter.key());
  }
  return names;
}

bool reads_images(const ModelFamily& family) {
  return !family.other_parts.empty() && std::ranges::count(family.inputs, "pixel_values") > 0;
}

bool is_of_other_part(const std::vector<std::string>& parts, const std::string& name) {
  return std::any_of(parts.begin(), parts.end(), [&](const std::string& part) {
    return name.starts_with(part + ".") || name.find("." + part + ".") != std::string::npos;
  });
}

bool continues_text(const ModelFamily& family, const nlohmann::json& config) {
  return !family.is_bidirectional && (!family.task || family.task(config) == "tokens");
}

nlohmann::json config_fingerprint(const ModelFamily& family, const nlohmann::json& config) {
  if (family.config_fingerprint) return family.config_fingerprint(config);
  const nlohmann::json all = family.hugging_face_config ? family.hugging_face_config(config) : config;
  nlohmann::json deciding = nlohmann::json::object();
  for (const auto& [key, value] : all.items()) {
    const auto speaks_of = [&name = key](const char* word) { return name.find(word) != std::string::npos; };
    if (!speaks_of("drop") && !speaks_of("initializer") && !speaks_of("token_id") && !speaks_of("dtype"))
      deciding[key] = value;
  }
  return deciding;
}

Registry<ModelFamily>& families() {
  struct Filled : Registry<ModelFamily> {
    Filled() : Registry("model family") {
      add("bert", bert_family());
      add("roberta", roberta_family());
      add("xlm-roberta", xlm_roberta_family());
      add("distilbert", distilbert_family());
      add("nomic_bert", nomic_bert_family());
      add("electra", electra_family());
      add("modernbert", modern_bert_family());
      add("t5", t5_family());
      add("mt5", mt5_family());
      add("umt5", umt5_family());
      add("bart", bart_family());
      add("pegasus", pegasus_family());
      add("vit", vit_family());
      add("clip", clip_family());
      add("siglip", siglip_family());
      add("whisper", whisper_family());
      for (const DecoderFamily& family : decoder_families()) add(family.model_type, model_family(family));
    }
  };
  static Filled registry;
  return registry;
}

std::string family_of(const nlohmann::json& config) {
  const auto type = config.find("model_type");
  if (type == config.end() || !type->is_string()) return "";
  for (const auto& name : families().names())
    if (families().at(name).model_type == type->get<std::string>()) return name;
  return "";
}

}  // namespace gantry::models
