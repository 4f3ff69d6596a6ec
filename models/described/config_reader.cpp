#include "gantry/models/described/config_reader.h"

#include <algorithm>
#include <fmt/format.h>

#include "gantry/models/described/config_keys.h"
#include "gantry/models/described/key_spellings.h"
#include "gantry/nn/activation_names.h"

namespace gantry::models {

using nlohmann::json;

ConfigReader::ConfigReader(const json& keys, const std::string& family) : keys_(keys), family_(family) {
  require_object(keys, family);
  for (const auto& [spelling, canonical, agrees] : key_spellings(family)) {
    if (!has(spelling)) continue;
    const bool differs = has(canonical) && keys_[canonical] != keys_[spelling];
    if (differs && agrees)
      refuse_key(canonical, keys_[canonical],
                 fmt::format("the value of its other spelling {}, which is {}", spelling, keys_[spelling].dump()));
    if (differs) continue;
    known_.push_back(spelling);
    keys_[canonical] = keys_[spelling];
  }
}

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

std::vector<std::int64_t> ConfigReader::sizes(const std::string& key, std::size_t count, std::int64_t missing) {
  std::vector<std::int64_t> sizes(count, missing);
  if (has(key) && keys_[key].is_array()) {
    const json& list = keys_[key];
    if (list.size() != count) refuse_key(key, list, fmt::format("a number, or a list of {} numbers", count));
    for (std::size_t i = 0; i < count; ++i) sizes[i] = size_key({{key, list[i]}}, key, missing);
  } else {
    sizes.assign(count, size_key(keys_, key, missing));
  }
  read(key, sizes);
  return sizes;
}

std::vector<double> ConfigReader::numbers(const std::string& key, std::size_t count, double least, double below) {
  ignore(key);
  if (!has(key)) return {};
  const json& list = keys_[key];
  if (!list.is_array() || list.size() != count) refuse_key(key, list, fmt::format("a list of {} numbers", count));
  std::vector<double> numbers;
  for (const json& number : list) numbers.push_back(number_key({{key, number}}, key, least, least, below));
  return numbers;
}

std::string ConfigReader::activation(const std::string& key, const std::string& missing) {
  for (const char* learned : {"prelu", "xielu"})
    if (has(key) && keys_[key] == learned)
      refuse_key(key, keys_[key], "an activation without weights of its own, such as relu");
  return choice(key, missing, nn::activation_names());
}

void ConfigReader::only(const std::string& key, const json& value, const std::string& reason) {
  only_value(keys_, key, value, reason);
  ignore(key);
}

void ConfigReader::ignore(const std::string& key) { known_.push_back(key); }

void ConfigReader::include(const std::string& key, const ConfigReader& part) {
  for (const auto& name : part.known()) known_.push_back(key + "." + name);
  for (const auto& name : part.unknown()) passed_over_.push_back(key + "." + name);
  decides_.update(part.deciding());
  json full = mapping(key);
  full.update(part.values());
  values_[key] = std::move(full);
}

void ConfigReader::decides(const std::string& name, json value) { decides_[name] = std::move(value); }

json ConfigReader::deciding() const {
  json deciding = decides_;
  for (const auto& [key, value] : values_.items()) {
    const auto speaks_of = [&name = key](const char* word) { return name.find(word) != std::string::npos; };
    if (!value.is_object() && !speaks_of("drop") && !speaks_of("initializer") && !speaks_of("token_id") &&
        !speaks_of("position"))
      deciding[key] = value;
  }
  return deciding;
}

void ConfigReader::pass_over(const std::string& path) { passed_over_.push_back(path); }

std::vector<std::string> ConfigReader::unknown() const {
  std::vector<std::string> unknown;
  const auto is_in = [](const std::vector<std::string>& names, const std::string& key) {
    return std::find(names.begin(), names.end(), key) != names.end();
  };
  for (const auto& [key, value] : keys_.items())
    if (!value.is_null() && !is_in(known_, key) && !is_in(common_keys(), key)) unknown.push_back(key);
  for (const auto& path : passed_over_)
    if (!is_in(unknown, path)) unknown.push_back(path);
  return unknown;
}

}  // namespace gantry::models
