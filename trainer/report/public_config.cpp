#include "gantry/trainer/report/public_config.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "gantry/core/config.h"
#include "gantry/core/error.h"

namespace gantry {
namespace {

constexpr const char* kNotShown = "(not shown)";

void hide(std::string& value) {
  if (!value.empty()) value = kNotShown;
}

// A model's own keys may have any name and value. Hides strings that contain a '/', and keys whose names
// suggest a secret.
void hide_texts(nlohmann::json& keys) {
  for (auto& [key, value] : keys.items()) {
    std::string name = key;
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    const bool is_secret =
        value.is_string() &&
        (name.ends_with("token") ||
         std::ranges::any_of(std::initializer_list<const char*>{"secret", "password", "api_key", "auth", "credential"},
                             [&](const char* word) { return name.find(word) != std::string::npos; }));
    const bool has_path = value.is_string() && value.get_ref<const std::string&>().find('/') != std::string::npos;
    if (is_secret || has_path)
      value = kNotShown;
    else if (value.is_structured())
      hide_texts(value);
  }
}

std::string public_text(Config config) {
  for (std::string* path : {&config.model.path, &config.data.path, &config.data.tokenizer, &config.evaluation.path,
                            &config.evaluation.choices, &config.checkpoint.path, &config.checkpoint.load,
                            &config.output, &config.comm.interface, &config.train.otlp})
    hide(*path);
  for (auto& source : config.data.sources) hide(source.path);
  for (auto& library : config.libraries) hide(library);
  if (config.checkpoint.resume != "none" && config.checkpoint.resume != "auto") hide(config.checkpoint.resume);
  if (config.schedule.name.find('/') != std::string::npos) config.schedule.name = "(not shown).csv";
  if (!config.model.config_json.empty()) {
    nlohmann::json keys = nlohmann::json::parse(config.model.config_json);
    hide_texts(keys);
    config.model.config_json = keys.dump();
  }
  return config.to_yaml();
}

}  // namespace

std::string public_config(const std::string& yaml) {
  try {
    return public_text(Config::parse_written(yaml, "config.yaml"));
  } catch (const Error&) {
    return "";
  }
}

}  // namespace gantry
