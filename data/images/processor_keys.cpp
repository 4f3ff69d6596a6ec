#include "gantry/data/images/processor_keys.h"

#include <fmt/format.h>

#include "gantry/core/error.h"
#include "gantry/core/io/strict_json.h"

namespace gantry {

using nlohmann::json;

ProcessorKeys::ProcessorKeys(std::string_view text, const std::string& path) : path_(path) {
  std::string fault = parse_strict(text, keys_);
  if (fault.empty() && !keys_.is_object()) fault = "the file is not a JSON object";
  if (!fault.empty()) throw InputError({path, fault, "the configuration of an image processor", "copy it again"});
}

void ProcessorKeys::refuse(const std::string& key, const std::string& expected) const {
  throw InputError({path_, fmt::format("'{}' is {}", key, keys_.contains(key) ? keys_[key].dump() : "missing"),
                    expected, "change it, or prepare the images yourself: docs/data_labelled.md, \"Tensors\""});
}

bool ProcessorKeys::flag(const std::string& key, bool initial) const {
  if (!has(key)) return initial;
  if (!keys_[key].is_boolean()) refuse(key, "true or false");
  return keys_[key];
}

double ProcessorKeys::number(const std::string& key, double initial) const {
  if (!has(key)) return initial;
  if (!keys_[key].is_number() || !(keys_[key] > 0)) refuse(key, "a number above 0");
  return keys_[key];
}

std::int64_t ProcessorKeys::count(const std::string& key, std::int64_t initial, std::int64_t most) const {
  if (!has(key)) return initial;
  const auto count = count_in(keys_[key]);
  if (!count || *count < 1 || *count > most) refuse(key, fmt::format("an integer from 1 to {}", most));
  return *count;
}

void ProcessorKeys::colours(const std::string& key, std::array<double, kColours>& values, double above) const {
  if (!has(key)) return;
  const json& list = keys_[key];
  if (!list.is_array() || list.size() != kColours) refuse(key, "a number for each of three colours");
  for (std::size_t i = 0; i < kColours; ++i) {
    if (!list[i].is_number() || !(list[i] > above)) refuse(key, fmt::format("numbers above {}", above));
    values[i] = list[i];
  }
}

int ProcessorKeys::side(const std::string& key, bool by_shorter) const {
  if (!has(key)) return 0;
  const json& size = keys_[key];
  if (size.is_object() && size.size() == 1 && size.contains("shortest_edge"))
    return -length(key, size["shortest_edge"]);
  if (!size.is_object()) return by_shorter ? -length(key, size) : length(key, size);
  if (size.size() != 2 || !size.contains("height") || !size.contains("width") || size["height"] != size["width"])
    refuse(key, "a number, {height, width} that are equal, or {shortest_edge}");
  return length(key, size["height"]);
}

int ProcessorKeys::length(const std::string& key, const json& value) const {
  const auto count = count_in(value);
  if (!count || *count < 1 || *count > (1 << 14)) refuse(key, "from 1 to 16384 pixels");
  return static_cast<int>(*count);
}

}  // namespace gantry
