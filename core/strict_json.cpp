#include "gantry/core/strict_json.h"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <utility>

#include "gantry/core/utf8.h"

namespace gantry {
namespace {

using nlohmann::json;

constexpr std::size_t kMostDepth = 64;
constexpr std::size_t kShownBytes = 100;  // maximum length of a key in a fault

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
    if (fault.empty()) fault = fmt::format("the text is not JSON at byte {}", position);
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

}  // namespace

std::string JsonNesting::open() {
  keys_.emplace_back();
  return keys_.size() <= kMostDepth ? "" : fmt::format("the JSON is nested deeper than {} levels", kMostDepth);
}

std::string JsonNesting::key(const std::string& name) {
  const std::string_view shown(name.data(), utf8_start(name, std::min(name.size(), kShownBytes)));
  return keys_.back().insert(name).second ? "" : fmt::format("the key '{}' appears twice", shown);
}

std::string json_fault(std::string_view text) {
  // The parser treats a zero byte as the end of the text.
  if (const auto at = text.find('\0'); at != text.npos) return fmt::format("the text is not JSON at byte {}", at + 1);
  FaultFinder finder;
  const bool sound = json::sax_parse(text.begin(), text.end(), &finder);
  if (!sound && finder.fault.empty()) return "the text is not JSON";
  return finder.fault;
}

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
