// Checked reading of Hugging Face's config.json keys. A key that is absent or null gives the default; a wrong one is a
// ConfigError that names it, its value and what is expected.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace gantry::models {

// Keys of any model that leave the numbers as they are, or are read beside the families.
const std::vector<std::string>& common_keys();

[[noreturn]] void refuse_key(const std::string& key, const nlohmann::json& value, const std::string& expected);

void require_object(const nlohmann::json& config, const std::string& family);
bool has_key(const nlohmann::json& config, const std::string& key);
// A whole number from `least` to 2^31.
std::int64_t size_key(const nlohmann::json& config, const std::string& key, std::int64_t missing,
                      std::int64_t least = 1);
// A number from `least` to below `below`.
double number_key(const nlohmann::json& config, const std::string& key, double missing, double least, double below);
bool flag_key(const nlohmann::json& config, const std::string& key, bool missing);
std::string choice_key(const nlohmann::json& config, const std::string& key, const std::string& missing,
                       const std::vector<std::string>& choices);
// The keys of these names, null where they are not there.
nlohmann::json keys_of(const nlohmann::json& config, const std::vector<std::string>& names);
// How many classes there are: those of id2label, or num_labels; refused where they contradict each other.
std::int64_t label_count(const nlohmann::json& config);
// Where the configuration names no labels: transformers' names for so many.
void fill_labels(nlohmann::json& config, std::int64_t count);
// Refuses any other value than the one that this family can do.
void only_value(const nlohmann::json& config, const std::string& key, const nlohmann::json& value);

}  // namespace gantry::models
