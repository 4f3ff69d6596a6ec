#include "gantry/models/config_keys.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "gantry/core/error.h"

namespace gantry::models {

using nlohmann::json;

void refuse_key(const std::string& key, const json& value, const std::string& expected) {
  throw ConfigError({"model.config." + key, "is " + value.dump(), expected, "see the model's config.json"});
}

void require_object(const json& config, const std::string& family) {
  if (!config.is_object())
    throw ConfigError({"model.config", "is " + config.dump(), "a mapping of Hugging Face's " + family + " keys", ""});
}

bool has_key(const json& config, const std::string& key) { return config.contains(key) && !config[key].is_null(); }

std::int64_t size_key(const json& config, const std::string& key, std::int64_t missing, std::int64_t least) {
  if (!has_key(config, key)) return missing;
  const json& value = config[key];
  constexpr std::int64_t kMost = std::int64_t{1} << 31;
  if (!value.is_number_integer() || value.get<double>() < static_cast<double>(least) ||
      value.get<double>() > static_cast<double>(kMost))
    refuse_key(key, value, fmt::format("a whole number from {}", least));
  return value.get<std::int64_t>();
}

double number_key(const json& config, const std::string& key, double missing, double least, double below) {
  if (!has_key(config, key)) return missing;
  const json& value = config[key];
  if (!value.is_number() || !(value.get<double>() >= least && value.get<double>() < below))
    refuse_key(key, value, fmt::format("a number from {} to below {}", least, below));
  return value.get<double>();
}

bool flag_key(const json& config, const std::string& key, bool missing) {
  if (!has_key(config, key)) return missing;
  if (!config[key].is_boolean()) refuse_key(key, config[key], "true or false");
  return config[key].get<bool>();
}

std::string choice_key(const json& config, const std::string& key, const std::string& missing,
                       const std::vector<std::string>& choices) {
  if (!has_key(config, key)) return missing;
  const json& value = config[key];
  if (!value.is_string() || std::find(choices.begin(), choices.end(), value.get<std::string>()) == choices.end())
    refuse_key(key, value, fmt::format("one of {}", fmt::join(choices, ", ")));
  return value.get<std::string>();
}

json keys_of(const json& config, const std::vector<std::string>& names) {
  json keys = json::object();
  for (const auto& name : names) keys[name] = has_key(config, name) ? config[name] : json(nullptr);
  return keys;
}

void only_value(const json& config, const std::string& key, const json& value) {
  if (has_key(config, key) && config[key] != value) refuse_key(key, config[key], value.dump());
}

}  // namespace gantry::models
