#include "gantry/models/model_family.h"

#include "gantry/models/bert_family.h"
#include "gantry/models/gpt2_family.h"
#include "gantry/models/llama_family.h"

namespace gantry::models {

nlohmann::json deciding_keys(const ModelFamily& family, const nlohmann::json& config) {
  if (family.deciding_keys) return family.deciding_keys(config);
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
      add("gpt2", gpt2_family());
      add("bert", bert_family());
      add("llama", llama_family());
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
