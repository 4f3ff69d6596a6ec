#include "gantry/data/tokenizers/json_file.h"

#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <fstream>
#include <nlohmann/json.hpp>

#include "gantry/core/error.h"
#include "gantry/core/io/strict_json.h"

namespace gantry {
namespace {

using nlohmann::json;

constexpr std::size_t kShownBytes = 60;  // bytes of a value in an error

// Describes a value in an error message. Lists and objects are described by their type only, because they can
// be deeply nested.
std::string shown(const json& value) {
  if (value.is_structured()) return value.type_name();
  std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true, json::error_handler_t::replace);
  return text.size() <= kShownBytes ? text : text.substr(0, kShownBytes) + "...";
}

}  // namespace

bool is_count(const json& value, std::int64_t below) {
  return value.is_number_integer() && (value.is_number_unsigned() || value.get<std::int64_t>() >= 0) &&
         value.get<std::uint64_t>() < static_cast<std::uint64_t>(below);
}

std::string read_bytes(const std::filesystem::path& path, std::uintmax_t most_bytes) {
  std::error_code failure;
  const bool is_file = std::filesystem::is_regular_file(path, failure);
  const auto size = is_file ? std::filesystem::file_size(path, failure) : 0;
  if (!is_file || failure)
    throw InputError({path.string(), failure ? failure.message() : "the path is not a regular file", "a tokenizer file",
                      "check the path"});
  if (size == 0 || size > most_bytes)
    throw InputError(
        {path.string(), fmt::format("the file has {} bytes", size), fmt::format("1 to {}", most_bytes), ""});
  std::ifstream file(path, std::ios::binary);
  std::string bytes(size, '\0');
  if (!file.read(bytes.data(), static_cast<std::streamsize>(size)))
    throw InputError({path.string(), std::strerror(errno), "a readable file", ""});
  return bytes;
}

json parse_json_text(std::string_view text, const std::filesystem::path& path) {
  json parsed;
  if (const auto fault = parse_strict(text, parsed); !fault.empty())
    throw InputError({path.string(), fault, "a JSON file", "download it again"});
  return parsed;
}

json read_json_file(const std::filesystem::path& path, std::uintmax_t most_bytes) {
  return parse_json_text(read_bytes(path, most_bytes), path);
}

void JsonView::refuse(const std::string& expected, const std::string& remedy) const {
  throw InputError({place_, "the value is " + shown(*value_), expected, remedy});
}

JsonView JsonView::at(const std::string& key) const {
  const auto found = object().find(key);
  if (found == value_->end()) throw InputError({place_, fmt::format("the key '{}' is missing", key), "", "add it"});
  return {*found, fmt::format("{}.{}", place_, key)};
}

std::optional<JsonView> JsonView::find(const std::string& key) const {
  const auto found = object().find(key);
  if (found == value_->end() || found->is_null()) return std::nullopt;
  return JsonView(*found, fmt::format("{}.{}", place_, key));
}

JsonView JsonView::element(std::size_t index) const { return {list().at(index), fmt::format("{}[{}]", place_, index)}; }

const json& JsonView::list() const {
  if (!value_->is_array()) refuse("a list");
  return *value_;
}

const json& JsonView::object() const {
  if (!value_->is_object()) refuse("an object");
  return *value_;
}

const std::string& JsonView::text() const {
  if (!value_->is_string()) refuse("a string");
  return value_->get_ref<const std::string&>();
}

bool JsonView::flag() const {
  if (!value_->is_boolean()) refuse("true or false");
  return value_->get<bool>();
}

std::int64_t JsonView::count(std::int64_t below) const {
  if (!is_count(*value_, below)) refuse(fmt::format("a number from 0 to {}", below - 1));
  return value_->get<std::int64_t>();
}

bool JsonView::flag_or(const std::string& key, bool otherwise) const {
  const auto found = find(key);
  return found ? found->flag() : otherwise;
}

std::string JsonView::text_or(const std::string& key, const std::string& otherwise) const {
  const auto found = find(key);
  return found ? found->text() : otherwise;
}

}  // namespace gantry
