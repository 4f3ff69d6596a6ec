// Checked access to keys of Hugging Face's config.json. A key that is absent or null has the default value `missing`. A
// wrong type or value throws ConfigError with the key, its value and the expected one.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace gantry::models {

// The mapping of config.json with the keys of a decoder that is a part of a larger model.
inline constexpr const char* kTextConfig = "text_config";

// Keys of any model that do not affect the computation, or that are read outside of the families.
const std::vector<std::string>& common_keys();

// `reason`: a clause that follows the value, "because ...".
[[noreturn]] void refuse_key(const std::string& key, const nlohmann::json& value, const std::string& expected,
                             const std::string& reason = "");
// Refuses a width that the heads cannot share evenly. `width_key` and `heads_key` are the keys of the two.
void require_multiple_of_heads(const std::string& width_key, std::int64_t width, const std::string& heads_key,
                               std::int64_t heads);

// Sets the keys of `overrides` in `keys`. The mapping of a decoder within a larger model, text_config, is not replaced:
// its own keys are set.
void override_keys(nlohmann::json& keys, const nlohmann::json& overrides);

void require_object(const nlohmann::json& config, const std::string& family);
bool has_key(const nlohmann::json& config, const std::string& key);
// An integer from `least` to 2^31.
std::int64_t size_key(const nlohmann::json& config, const std::string& key, std::int64_t missing,
                      std::int64_t least = 1);
// A number in [least, below).
double number_key(const nlohmann::json& config, const std::string& key, double missing, double least, double below);
// true or false, also as text.
bool flag_key(const nlohmann::json& config, const std::string& key, bool missing);
std::string choice_key(const nlohmann::json& config, const std::string& key, const std::string& missing,
                       const std::vector<std::string>& choices);
// Returns the first entry of `architectures`, or "" if there is none.
std::string architecture_key(const nlohmann::json& config);
// Returns these keys with their values; null for absent keys.
nlohmann::json keys_of(const nlohmann::json& config, const std::vector<std::string>& names);
// Returns the number of classes, from id2label or num_labels. Throws ConfigError if these contradict each other.
std::int64_t label_count(const nlohmann::json& config);
// Adds transformers' default labels for `count` classes, unless the configuration has labels.
// The value of problem_type for a head with `labels` labels, by the rule of ModelFamily::problem_type.
std::string problem_type_of(const nlohmann::json& config, std::int64_t labels);
void fill_labels(nlohmann::json& config, std::int64_t count);
// Throws ConfigError unless the key is absent or has this value, the only one that the family supports. `reason`: why.
void only_value(const nlohmann::json& config, const std::string& key, const nlohmann::json& value,
                const std::string& reason = "");

}  // namespace gantry::models
