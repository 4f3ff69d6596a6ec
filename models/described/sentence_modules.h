// The modules of sentence-transformers in a model directory: how the embedding of a sentence is computed from its
// tokens.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "gantry/models/described/bert_config.h"
#include "gantry/models/described/config_reader.h"

namespace gantry::models {

// The key under which the modules are added to the keys of config.json. Only Gantry has it, and it is not exported.
inline constexpr const char* kSentenceModules = "sentence_modules";

// A key of Gantry: true selects SentencePooling::compares.
inline constexpr const char* kSentencePairs = "sentence_pairs";

// Adds the modules that `directory`/modules.json lists, with their own files, to `keys`. `keys` stay unchanged if the
// directory has no such file, or if no module is a Pooling. Throws InputError for a file that cannot be read.
void add_sentence_modules(nlohmann::json& keys, const std::string& directory);

// Removes both keys from an exported config.json.
void leave_out_sentences(nlohmann::json& config);

// Reads the modules for the model without a head. Throws ConfigError that names the module if Gantry cannot compute it.
// Null if there are none.
std::optional<SentencePooling> read_sentence_modules(ConfigReader& reader);

}  // namespace gantry::models
