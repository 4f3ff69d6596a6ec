// Reads a family's config.json with its read function, which takes a ConfigReader.
#pragma once

#include <functional>
#include <string>

#include "gantry/models/described/config_reader.h"
#include "gantry/models/described/sentence_modules.h"
#include "gantry/models/described/shared_keys.h"

namespace gantry::models {

// Returns a function that reads the keys of all families, and then those of `read`.
template <class Read>
auto with_shared_keys(const Read& read, bool has_cross_attention = false) {
  return [read, has_cross_attention](ConfigReader& reader) {
    read_shared_keys(reader, has_cross_attention);
    return read(reader);
  };
}

// Returns the result of `read`. Throws ConfigError for unsupported values; unknown keys have no effect.
template <class Read>
auto read_keys(const nlohmann::json& keys, const std::string& family, const Read& read) {
  ConfigReader reader(keys, family);
  return read(reader);
}

// Returns the keys that affect the model's computation.
template <class Read>
nlohmann::json deciding_keys_of(const nlohmann::json& keys, const std::string& family, const Read& read) {
  ConfigReader reader(keys, family);
  read(reader);
  return reader.deciding();
}

// Returns a complete config.json: the keys, the values that were read, and defaults for absent keys.
template <class Read>
nlohmann::json full_config_of(const nlohmann::json& keys, const std::string& family, const std::string& architecture,
                              const Read& read) {
  ConfigReader reader(keys, family);
  read(reader);
  nlohmann::json full = keys;
  for (const auto& [key, value] : reader.values().items()) full[key] = value;
  full["model_type"] = family;
  full["architectures"] = {architecture};
  full.erase("quantization_config");  // exported weights are decoded
  leave_out_sentences(full);
  return full;
}

// The name of the class of transformers without a head: "LlamaModel" of "LlamaForCausalLM".
inline std::string architecture_without_head(const std::string& architecture) {
  for (const std::string head : {"ForCausalLM", "LMHeadModel"})
    if (architecture.ends_with(head)) return architecture.substr(0, architecture.size() - head.size()) + "Model";
  return architecture;
}

// Sets absent token ids to null, because the defaults of transformers can be outside of a smaller vocabulary.
inline void leave_out_tokens(nlohmann::json& config) {
  for (const char* token : {"bos_token_id", "eos_token_id"})
    if (!config.contains(token)) config[token] = nullptr;
}

}  // namespace gantry::models
