// The families as their config.json is read, without LibTorch.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gantry/models/described/checked_keys.h"
#include "gantry/models/described/config_reader.h"

namespace gantry::models {

struct FamilyReader {
  std::string model_type;    // "llama"
  std::string architecture;  // the head without `architectures`: "LlamaForCausalLM"
  // Reads every key that affects the computation.
  std::function<void(ConfigReader& reader)> read;
  std::vector<std::string> harmless = {};     // further keys of the family that do not affect the computation
  std::vector<std::string> other_parts = {};  // see FileNames::other_parts
};

// All of Gantry's families, sorted by name.
const std::vector<FamilyReader>& family_readers();

// Null if Gantry has no family with this model_type.
const FamilyReader* find_family_reader(const std::string& model_type);

// Throws ConfigError that names the model_type and the most similar family. `where`: the file or key.
[[noreturn]] void refuse_model_type(const std::string& where, const std::string& model_type,
                                    const std::vector<std::string>& known);

// check_keys() of a family.
using CheckKeys = std::function<CheckedKeys(const nlohmann::json& keys)>;

// Reads `keys` with all checks of the family. Throws ConfigError for unsupported values.
CheckedKeys check_keys(const FamilyReader& family, const nlohmann::json& keys);

// Applies `rule`, the value of model.unknown_keys, to unknown keys: "warn" returns the line of the warning, empty if
// there are no unknown keys; "refuse" throws ConfigError. An unknown key that is not in `file` was set in the run's
// own configuration and is always an error. `file`: the keys of config.json. `where`: its path.
std::string judge_unknown_keys(const CheckedKeys& checked, const std::string& model_type, const std::string& rule,
                               const nlohmann::json& file, const std::string& where);

// Returns judge(check(keys)). If `check` throws ConfigError for a value, unknown keys come first, because a misspelt
// key is a frequent reason: `judge` gets the keys without the refused values, and then the error of `check` is thrown.
std::string judge_before_values(const CheckKeys& check, const nlohmann::json& keys,
                                const std::function<std::string(const CheckedKeys& checked)>& judge);

}  // namespace gantry::models
