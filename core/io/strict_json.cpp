#include "gantry/core/io/strict_json.h"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <utility>

#include "gantry/core/base/utf8.h"

namespace gantry {
namespace {

using nlohmann::json;

constexpr std::size_t kMostDepth = 64;
constexpr std::size_t kShownBytes = 100;  // maximum length of a key in a fault

std::string depth_fault(std::size_t depth) {
  return depth <= kMostDepth ? "" : fmt::format("the JSON is nested deeper than {} levels", kMostDepth);
}

std::string twice(const std::string& key) {
  const std::string_view shown(key.data(), utf8_start(key, std::min(key.size(), kShownBytes)));
  return fmt::format("the key '{}' appears twice", shown);
}

std::string no_json_at(std::size_t byte) { return fmt::format("the text is not JSON at byte {}", byte); }

// Checks every event and keeps no value.
class FaultFinder final : public nlohmann::json_sax<json> {
 public:
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return open(); }
  bool start_array(std::size_t) override { return open(); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override { return is_sound(nesting_.key(name)); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) override {
    if (fault.empty()) fault = no_json_at(position);
    return false;
  }

  std::string fault;

 private:
  bool open() { return is_sound(nesting_.open()); }
  bool close() {
    nesting_.close();
    return true;
  }
  bool is_sound(std::string found) {
    fault = std::move(found);
    return fault.empty();
  }

  JsonNesting nesting_;
};

// Builds a document and stops at the first fault.
template <class Json>
class DocumentBuilder final : public nlohmann::json_sax<Json> {
 public:
  using Text = typename Json::string_t;

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(typename Json::number_integer_t value) override { return add(value); }
  bool number_unsigned(typename Json::number_unsigned_t value) override { return add(value); }
  bool number_float(typename Json::number_float_t value, const Text&) override { return add(value); }
  bool string(Text& value) override { return add(std::move(value)); }
  bool binary(typename Json::binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(Text& name) override {
    const auto [member, is_new] = open_.back()->emplace(name, nullptr);
    member_ = &*member;
    if (!is_new) fault = twice(name);
    return is_new;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) override {
    if (fault.empty()) fault = no_json_at(position);
    return false;
  }

  Json made;
  std::string fault;

 private:
  Json* place(Json value) {
    if (open_.empty()) return &(made = std::move(value));
    if (!open_.back()->is_array()) return &(*member_ = std::move(value));
    open_.back()->push_back(std::move(value));
    return &open_.back()->back();
  }
  bool add(Json value) {
    place(std::move(value));
    return true;
  }
  bool open(Json empty) {
    open_.push_back(place(std::move(empty)));
    fault = depth_fault(open_.size());
    return fault.empty();
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  std::vector<Json*> open_;  // the open objects and lists, the outermost first
  Json* member_ = nullptr;   // the value of the last key
};

// The fault of a text by the handler of its events.
template <class Json, class Handler>
std::string fault_by(std::string_view text, Handler& handler) {
  // The parser treats a zero byte as the end of the text.
  if (const auto at = text.find('\0'); at != text.npos) return no_json_at(at + 1);
  const bool sound = Json::sax_parse(text.begin(), text.end(), &handler);
  return sound || !handler.fault.empty() ? handler.fault : "the text is not JSON";
}

template <class Json>
std::string parse(std::string_view text, Json& made) {
  DocumentBuilder<Json> builder;
  std::string fault = fault_by<Json>(text, builder);
  made = fault.empty() ? std::move(builder.made) : Json();
  return fault;
}

}  // namespace

std::string JsonNesting::open() {
  keys_.emplace_back();
  return depth_fault(keys_.size());
}

std::string JsonNesting::key(const std::string& name) { return keys_.back().insert(name).second ? "" : twice(name); }

std::string json_fault(std::string_view text) {
  FaultFinder finder;
  return fault_by<json>(text, finder);
}

std::string parse_strict(std::string_view text, json& made) { return parse(text, made); }
std::string parse_strict(std::string_view text, nlohmann::ordered_json& made) { return parse(text, made); }

std::optional<std::int64_t> count_in(const json& value) {
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > (std::uint64_t{1} << 62)) return std::nullopt;
  return value.get<std::int64_t>();
}

bool is_plain_file_name(std::string_view name) {
  const auto odd = [](unsigned char c) { return c == '/' || c == '\\' || c < 32 || c == 127; };
  return !name.empty() && name.size() <= 255 && name[0] != '.' && std::none_of(name.begin(), name.end(), odd);
}

std::string likeness(std::string_view start) {
  // The length of a safetensors header can start like a pickle.
  if (start.size() > 8 && start.substr(4, 4) == std::string_view("\0\0\0\0", 4) && start[8] == '{') return "";
  const auto first = std::find_if(start.begin(), start.end(), [](unsigned char c) { return c > ' '; });
  std::string shown(first, std::min(first + 16, start.end()));
  std::transform(shown.begin(), shown.end(), shown.begin(),
                 [](unsigned char c) { return c < 128 ? static_cast<char>(std::tolower(c)) : static_cast<char>(c); });
  if (start.starts_with("version https://git-lfs"))
    return "a Git LFS pointer; fetch the file itself with `git lfs pull`";
  if (start.starts_with("PK\x03\x04")) return "a zip archive, as torch.save writes; convert it to safetensors";
  if (start.starts_with("\x80") && start.size() > 1 && start[1] >= 1 && start[1] <= 5)
    return "a pickle; convert it to safetensors";
  if (start.starts_with("\x89HDF")) return "an HDF5 file; convert it to safetensors";
  if (start.starts_with("GGUF")) return "a GGUF file; use the safetensors files of the model";
  if (shown.starts_with("<!doctype") || shown.starts_with("<html")) return "an HTML page; download the file itself";
  if (shown.starts_with("<?xml")) return "an XML page; download the file itself";
  return "";
}

}  // namespace gantry
