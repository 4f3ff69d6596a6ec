#include "gantry/models/described/config_reader.h"

#include <algorithm>
#include <fmt/format.h>

#include "gantry/core/error.h"
#include "gantry/models/described/config_keys.h"

namespace gantry::models {

using nlohmann::json;

ConfigReader::ConfigReader(const json& keys, const std::string& family) : keys_(keys) { require_object(keys, family); }

bool ConfigReader::has(const std::string& key) const { return has_key(keys_, key); }

void ConfigReader::read(const std::string& key, const json& value) {
  known_.push_back(key);
  values_[key] = has(key) ? keys_[key] : value;  // as the file spells it
}

std::int64_t ConfigReader::size(const std::string& key, std::int64_t missing, std::int64_t least) {
  const std::int64_t value = size_key(keys_, key, missing, least);
  read(key, value);
  return value;
}

std::int64_t ConfigReader::token(const std::string& key, std::int64_t missing, std::int64_t vocabulary) {
  const std::int64_t token = size(key, std::min(missing, vocabulary - 1), 0);
  if (token >= vocabulary) refuse_key(key, token, fmt::format("below vocab_size {}", vocabulary));
  return token;
}

double ConfigReader::number(const std::string& key, double missing, double least, double below) {
  const double value = number_key(keys_, key, missing, least, below);
  read(key, value);
  return value;
}

std::int64_t ConfigReader::size_or_none(const std::string& key, std::int64_t missing) {
  ignore(key);
  if (keys_.contains(key) && keys_[key].is_null()) return 0;
  const std::int64_t value = size_key(keys_, key, missing, 0);
  decides(key, value);
  return value;
}

double ConfigReader::number_or_none(const std::string& key, double missing, double least, double below) {
  ignore(key);
  if (keys_.contains(key) && keys_[key].is_null()) return 0;
  const double value = number_key(keys_, key, missing, least, below);
  decides(key, value);
  return value;
}

bool ConfigReader::flag(const std::string& key, bool missing) {
  const bool value = flag_key(keys_, key, missing);
  read(key, value);
  return value;
}

std::string ConfigReader::choice(const std::string& key, const std::string& missing,
                                 const std::vector<std::string>& choices) {
  const std::string value = choice_key(keys_, key, missing, choices);
  read(key, value);
  return value;
}

json ConfigReader::mapping(const std::string& key) {
  ignore(key);
  if (!has(key)) return json::object();
  if (!keys_[key].is_object()) refuse_key(key, keys_[key], "a mapping");
  return keys_[key];
}

std::vector<std::string> ConfigReader::words(const std::string& key, std::size_t count,
                                             const std::vector<std::string>& choices) {
  ignore(key);
  if (!has(key)) return {};
  const json& list = keys_[key];
  if (!list.is_array() || list.size() != count) refuse_key(key, list, fmt::format("a list of {} words", count));
  std::vector<std::string> words;
  for (const json& word : list) words.push_back(choice_key({{key, word}}, key, "", choices));
  return words;
}

void ConfigReader::only(const std::string& key, const json& value) {
  only_value(keys_, key, value);
  ignore(key);
}

void ConfigReader::ignore(const std::string& key) { known_.push_back(key); }

void ConfigReader::decides(const std::string& name, json value) { decides_[name] = std::move(value); }

json ConfigReader::deciding() const {
  json deciding = decides_;
  for (const auto& [key, value] : values_.items()) {
    const auto speaks_of = [&name = key](const char* word) { return name.find(word) != std::string::npos; };
    if (!speaks_of("drop") && !speaks_of("initializer") && !speaks_of("token_id") && !speaks_of("position"))
      deciding[key] = value;
  }
  return deciding;
}

void ConfigReader::refuse_others(const std::string& model_type) const {
  std::vector<std::string> known = known_;
  const auto& common = common_keys();
  known.insert(known.end(), common.begin(), common.end());
  for (const auto& [key, value] : keys_.items()) {
    if (value.is_null() || std::find(known.begin(), known.end(), key) != known.end()) continue;
    const std::string near = nearest_name(key, known);
    throw ConfigError({"model.config." + key, "unknown key of " + model_type,
                       "a key of Hugging Face's config.json for " + model_type,
                       near.empty() ? "remove it" : "did you mean '" + near + "'?"});
  }
}

}  // namespace gantry::models
