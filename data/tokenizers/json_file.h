// Reads untrusted JSON files. The errors of the getters name the wrong key.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace gantry {

// Returns the bytes of a regular file. Throws InputError if there is none, or if it is empty or has more than
// `most_bytes` bytes.
std::string read_bytes(const std::filesystem::path& path, std::uintmax_t most_bytes);

// `path` is for messages. Throws InputError for a fault that parse_strict finds.
nlohmann::json parse_json_text(std::string_view text, const std::filesystem::path& path);
nlohmann::json read_json_file(const std::filesystem::path& path, std::uintmax_t most_bytes);

bool is_count(const nlohmann::json& value, std::int64_t below);  // a whole number from 0 to below - 1

// A value and its place, "tokenizer.json: model.merges". Does not own the value.
class JsonView {
 public:
  JsonView(const nlohmann::json& value, std::string place) : value_(&value), place_(std::move(place)) {}

  const nlohmann::json& json() const { return *value_; }
  const std::string& place() const { return place_; }
  bool is_null() const { return value_->is_null(); }

  JsonView at(const std::string& key) const;                   // throws InputError if it is missing
  std::optional<JsonView> find(const std::string& key) const;  // nothing if it is missing or null
  JsonView element(std::size_t index) const;
  const nlohmann::json& list() const;
  const nlohmann::json& object() const;
  const std::string& text() const;
  bool flag() const;
  std::int64_t count(std::int64_t below) const;  // 0 to below - 1
  bool flag_or(const std::string& key, bool otherwise) const;
  std::string text_or(const std::string& key, const std::string& otherwise) const;

  // Throws InputError that names the place, the value and `expected`.
  [[noreturn]] void refuse(const std::string& expected, const std::string& remedy = "") const;

 private:
  const nlohmann::json* value_;
  std::string place_;
};

}  // namespace gantry
