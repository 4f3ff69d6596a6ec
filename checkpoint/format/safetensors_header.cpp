#include "gantry/checkpoint/format/safetensors_header.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "gantry/core/error.h"
#include "gantry/core/io/strict_json.h"

namespace gantry {
namespace {

using nlohmann::json;

constexpr std::uint64_t kMostHeaderBytes = 100'000'000;  // the format's own limit
constexpr std::uint64_t kLengthBytes = 8;
constexpr const char* kMetadata = "__metadata__";

class HeaderParser {
 public:
  HeaderParser(std::string_view file, const std::string& path) : file_(file), path_(path) {}

  SafetensorsHeader parse() {
    const std::string_view text = header_text();
    if (text.empty() || text[0] != '{') refuse("its header does not begin with '{'");
    json parsed;
    if (const auto fault = parse_strict(text, parsed); !fault.empty()) refuse("its header cannot be parsed: " + fault);
    SafetensorsHeader header;
    header.data_start = kLengthBytes + text.size();
    data_bytes_ = file_.size() - header.data_start;
    for (const auto& [name, value] : parsed.items()) {
      if (name == kMetadata)
        header.metadata = metadata(value);
      else
        header.tensors.emplace(name, tensor(name, value));
    }
    check_cover(header);
    return header;
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    const std::string like = likeness(file_.substr(0, 64));
    throw InputError({path_, what, "a valid safetensors file",
                      like.empty() ? "download or write it again" : "it looks like " + like});
  }

  std::string_view header_text() const {
    if (file_.empty()) refuse("the file is empty");
    if (file_.size() < kLengthBytes)
      refuse(fmt::format("the file has {} bytes, fewer than the 8 bytes of the header's length", file_.size()));
    std::uint64_t length = 0;
    std::memcpy(&length, file_.data(), kLengthBytes);
    if (length > kMostHeaderBytes || length > file_.size() - kLengthBytes)
      refuse(fmt::format("its header has a stated length of {} bytes, but the file has {}", length, file_.size()));
    return file_.substr(kLengthBytes, length);
  }

  std::map<std::string, std::string> metadata(const json& value) const {
    if (!value.is_object()) refuse("__metadata__ is not an object");
    std::map<std::string, std::string> texts;
    for (const auto& [key, text] : value.items()) {
      if (!text.is_string()) refuse("__metadata__ has a value that is not a string: " + key);
      texts[key] = text.get<std::string>();
    }
    return texts;
  }

  StoredTensor tensor(const std::string& name, const json& value) const {
    if (!value.is_object() || value.size() != 3 || !value.contains("dtype") || !value.contains("shape") ||
        !value.contains("data_offsets"))
      refuse("tensor '" + name + "' does not have exactly dtype, shape and data_offsets");
    StoredTensor made;
    const json& dtype = value["dtype"];
    made.type = dtype.is_string() ? find_stored_type(dtype.get<std::string>()) : nullptr;
    if (!made.type) refuse("tensor '" + name + "' has the unknown dtype " + dtype.dump().substr(0, 100));
    place(name, value["data_offsets"], made);
    if (!value["shape"].is_array()) refuse("tensor '" + name + "' has a shape that is not a list");
    for (const auto& extent : value["shape"]) {
      const auto count = count_in(extent);
      if (!count) refuse("tensor '" + name + "' has a shape with an entry that is not a count, or overflows");
      made.shape.push_back(*count);
    }
    const auto needed = stored_bytes(*made.type, made.shape);
    if (!needed) refuse("tensor '" + name + "' has a shape whose size overflows, or does not fill whole bytes");
    if (*needed != made.end - made.begin)
      refuse(fmt::format("tensor '{}' needs {} bytes for [{}], but has {}", name, *needed, fmt::join(made.shape, ", "),
                         made.end - made.begin));
    return made;
  }

  void place(const std::string& name, const json& offsets, StoredTensor& made) const {
    const bool pair = offsets.is_array() && offsets.size() == 2;
    const auto begin = pair ? count_in(offsets[0]) : std::nullopt, end = pair ? count_in(offsets[1]) : std::nullopt;
    if (!begin || !end) refuse("tensor '" + name + "' has data_offsets that are not two counts");
    made.begin = static_cast<std::uint64_t>(*begin);
    made.end = static_cast<std::uint64_t>(*end);
    if (made.begin > made.end || made.end > data_bytes_)
      refuse(fmt::format("tensor '{}' has the bytes {} to {} of {}", name, made.begin, made.end, data_bytes_));
  }

  // Every byte belongs to exactly one tensor.
  void check_cover(const SafetensorsHeader& header) const {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> parts;
    for (const auto& [name, tensor] : header.tensors) parts.emplace_back(tensor.begin, tensor.end);
    std::sort(parts.begin(), parts.end());
    std::uint64_t covered = 0;
    for (const auto& [begin, end] : parts) {
      if (begin != covered) refuse(fmt::format("its tensors leave a hole or overlap at byte {}", covered));
      covered = end;
    }
    if (covered != data_bytes_) refuse(fmt::format("its tensors cover {} of {} bytes", covered, data_bytes_));
  }

  std::string_view file_;
  const std::string& path_;
  std::uint64_t data_bytes_ = 0;
};

}  // namespace

SafetensorsHeader parse_safetensors_header(std::string_view file, const std::string& path) {
  return HeaderParser(file, path).parse();
}

std::string make_safetensors_header(const std::vector<NamedTensorShape>& tensors,
                                    const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header[kMetadata] = metadata;
  std::uint64_t offset = 0;
  for (const auto& [name, type, shape] : tensors) {
    const std::uint64_t end = offset + stored_bytes(*type, shape).value();
    header[name] = {{"dtype", type->name}, {"shape", shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  while (text.size() % 8 != 0) text += ' ';
  const std::uint64_t length = text.size();
  std::string bytes(kLengthBytes, '\0');
  std::memcpy(bytes.data(), &length, kLengthBytes);
  return bytes + text;
}

}  // namespace gantry
