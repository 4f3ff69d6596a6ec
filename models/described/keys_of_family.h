// What a family says of its config.json, by the one function that reads it: `read` takes a ConfigReader.
#pragma once

#include <string>

#include "gantry/models/described/config_reader.h"

namespace gantry::models {

// What `read` makes of the keys. ConfigError for a key that it does not read and that nobody says is harmless.
template <class Read>
auto read_keys(const nlohmann::json& keys, const std::string& family, const Read& read) {
  ConfigReader reader(keys, family);
  auto made = read(reader);
  reader.refuse_others(family);
  return made;
}

// Those that decide the model's numbers.
template <class Read>
nlohmann::json deciding_keys_of(const nlohmann::json& keys, const std::string& family, const Read& read) {
  ConfigReader reader(keys, family);
  read(reader);
  return reader.deciding();
}

// A whole config.json: the keys, with what was read in their place and defaults where there was none.
template <class Read>
nlohmann::json whole_config_of(const nlohmann::json& keys, const std::string& family, const std::string& architecture,
                               const Read& read) {
  ConfigReader reader(keys, family);
  read(reader);
  nlohmann::json whole = keys;
  for (const auto& [key, value] : reader.values().items()) whole[key] = value;
  whole["model_type"] = family;
  whole["architectures"] = {architecture};
  return whole;
}

// transformers' own defaults lie outside a smaller vocabulary.
inline void leave_out_tokens(nlohmann::json& config) {
  for (const char* token : {"bos_token_id", "eos_token_id"})
    if (!config.contains(token)) config[token] = nullptr;
}

}  // namespace gantry::models
