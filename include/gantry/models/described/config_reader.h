// Reads Hugging Face's config.json and records the keys that were read. The code that reads a family's configuration
// thereby also defines the known keys, their defaults, and the keys that affect the computation.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace gantry::models {

class ConfigReader {
 public:
  // Throws ConfigError if `keys` is not a mapping, or if two spellings of one key contradict each other. `family`:
  // model_type, which selects the alternative spellings of keys (`n_layer` for `num_hidden_layers`).
  ConfigReader(const nlohmann::json& keys, const std::string& family);

  // The keys of config.json. A value that has an alternative spelling only is also stored under its canonical name.
  const nlohmann::json& keys() const { return keys_; }
  const std::string& family() const { return family_; }
  bool has(const std::string& key) const;  // present and not null
  // A key that is absent or null returns `missing`. Throws ConfigError that names the key for a wrong type or value.
  std::int64_t size(const std::string& key, std::int64_t missing, std::int64_t least = 1);
  // Returns a token id below `vocabulary`. The ConfigError for a larger id refers to vocab_size.
  std::int64_t token(const std::string& key, std::int64_t missing, std::int64_t vocabulary);
  double number(const std::string& key, double missing, double least, double below);
  // Here, null and 0 both mean "none" and return 0; only an absent key returns `missing`.
  std::int64_t size_or_none(const std::string& key, std::int64_t missing);
  double number_or_none(const std::string& key, double missing, double least, double below);
  bool flag(const std::string& key, bool missing);
  std::string choice(const std::string& key, const std::string& missing, const std::vector<std::string>& choices);
  // Returns the mapping at this key, or an empty one. The caller reads and checks its keys. Throws ConfigError for
  // another type.
  nlohmann::json mapping(const std::string& key);
  // Returns a list of `count` strings, each one of `choices`; empty if the key is absent.
  std::vector<std::string> words(const std::string& key, std::size_t count, const std::vector<std::string>& choices);
  // Returns `count` numbers: those of a list, or one number for all. A key that is absent or null returns `missing` for
  // each.
  std::vector<std::int64_t> sizes(const std::string& key, std::size_t count, std::int64_t missing);
  // Returns a list of `count` numbers in [least, below); empty if the key is absent or null.
  std::vector<double> numbers(const std::string& key, std::size_t count, double least, double below);
  // Returns the name of an activation, one of nn::activation_names(). Throws ConfigError for activations with weights.
  std::string activation(const std::string& key, const std::string& missing);
  // Throws ConfigError for any other value: the only one that the family supports. `reason`: a clause for the message
  // that says why other values are not supported.
  void only(const std::string& key, const nlohmann::json& value, const std::string& reason = "");
  // Accepts a key that does not affect the computation, or that is implied by other keys.
  void ignore(const std::string& key);
  // Adds the keys that `part` has read from the mapping at `key`.
  void include(const std::string& key, const ConfigReader& part);
  // Records a value that affects the computation under one normalised name, if several keys can set it.
  void decides(const std::string& name, nlohmann::json value);

  // Returns all keys that were read, with defaults, except null values.
  const nlohmann::json& values() const { return values_; }
  // Returns the keys that affect the model's computation: without dropout, initial weights, token ids and dtypes.
  nlohmann::json deciding() const;
  // Records a key within a mapping, "rope_scaling.finetuned", that has no meaning for the family.
  void pass_over(const std::string& path);
  // Returns the keys that were neither read nor accepted, except null values, with those of pass_over(). They belong
  // neither to the family nor to all Hugging Face models.
  std::vector<std::string> unknown() const;
  // Returns the names of all keys that were read or accepted so far.
  const std::vector<std::string>& known() const { return known_; }

 private:
  void read(const std::string& key, const nlohmann::json& value);

  nlohmann::json keys_;
  std::string family_;
  nlohmann::json values_ = nlohmann::json::object();
  nlohmann::json decides_ = nlohmann::json::object();
  std::vector<std::string> known_, passed_over_;
};

}  // namespace gantry::models
