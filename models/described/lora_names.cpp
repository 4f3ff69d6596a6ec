#include "gantry/models/described/lora_names.h"

#include <cmath>
#include <fmt/format.h>
#include <regex>

#include "gantry/core/error.h"

namespace gantry::models {
namespace {

template <class Number>
const Number* find_pattern(const char* key, const std::map<std::string, Number>& patterns, const std::string& path) {
  const std::pair<const std::string, Number>* found = nullptr;
  for (const auto& each : patterns) {
    try {
      if (!std::regex_match(path, std::regex("(.*\\.)?(" + each.first + ")"))) continue;
    } catch (const std::regex_error&) {
      throw ConfigError(
          {key, "'" + each.first + "' is not a regular expression", "an expression for the end of a layer's path", ""});
    }
    if (found)
      throw ConfigError({key, fmt::format("'{}' and '{}' both match {}", found->first, each.first, path),
                         "one pattern for each layer", "make the patterns narrower"});
    found = &each;
  }
  return found ? &found->second : nullptr;
}

}  // namespace

bool names_module(const std::string& entry, const std::string& path) {
  return path == entry || path.ends_with("." + entry);
}

std::int64_t rank_of(const LoraConfig& lora, const std::string& path) {
  const int* own = find_pattern("lora.rank_pattern", lora.rank_pattern, path);
  return own ? *own : lora.r;
}

double scale_of(const LoraConfig& lora, const std::string& path) {
  const double* own = find_pattern("lora.alpha_pattern", lora.alpha_pattern, path);
  const auto rank = static_cast<double>(rank_of(lora, path));
  return (own ? *own : lora.alpha) / (lora.rslora ? std::sqrt(rank) : rank);
}

}  // namespace gantry::models
