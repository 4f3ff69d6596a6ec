// Reads Hugging Face's config.json and remembers what was read, so that one text says which keys a family has, what
// they are by default, and which values decide its numbers.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace gantry::models {

class ConfigReader {
 public:
  // `keys` must outlive it. ConfigError where it is no mapping. `family`: for messages.
  ConfigReader(const nlohmann::json& keys, const std::string& family);

  const nlohmann::json& keys() const { return keys_; }
  bool has(const std::string& key) const;  // and is not null
  // A key that is absent or null gives `missing`; ConfigError for a wrong type or value, naming it.
  std::int64_t size(const std::string& key, std::int64_t missing, std::int64_t least = 1);
  // The id of a token, below `vocabulary`; ConfigError in words of vocab_size for one that is not.
  std::int64_t token(const std::string& key, std::int64_t missing, std::int64_t vocabulary);
  double number(const std::string& key, double missing, double least, double below);
  // null or 0 says that there is none, which is 0; only a key that is absent gives `missing`.
  std::int64_t size_or_none(const std::string& key, std::int64_t missing);
  double number_or_none(const std::string& key, double missing, double least, double below);
  bool flag(const std::string& key, bool missing);
  std::string choice(const std::string& key, const std::string& missing, const std::vector<std::string>& choices);
  // The mapping below a key, empty where there is none; its keys are the caller's to read. ConfigError for another
  // type.
  nlohmann::json mapping(const std::string& key);
  // A list of words, one of `choices` each, `count` of them; empty where there is none.
  std::vector<std::string> words(const std::string& key, std::size_t count, const std::vector<std::string>& choices);
  // Refuses any other value than the one that the family can do.
  void only(const std::string& key, const nlohmann::json& value);
  // A key that leaves the numbers as they are, or that is understood from others.
  void ignore(const std::string& key);
  // What decides numbers, in one spelling, where several keys may say it.
  void decides(const std::string& name, nlohmann::json value);

  // All keys that were read, with defaults filled in where their value is no null.
  const nlohmann::json& values() const { return values_; }
  // Those that decide what the model computes; not dropout, initial weights, token ids and dtypes.
  nlohmann::json deciding() const;
  // ConfigError for a key that was not read and that nobody says is harmless, naming the nearest.
  void refuse_others(const std::string& model_type) const;

 private:
  void read(const std::string& key, const nlohmann::json& value);

  const nlohmann::json& keys_;
  nlohmann::json values_ = nlohmann::json::object();
  nlohmann::json decides_ = nlohmann::json::object();
  std::vector<std::string> known_;
};

}  // namespace gantry::models
