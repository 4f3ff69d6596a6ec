#include "gantry/models/described/lora_names.h"

#include <cmath>
#include <fmt/format.h>
#include <regex>

#include "gantry/core/config/adapter_names.h"
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

bool is_pissa(const LoraConfig& lora) { return lora.init_lora_weights.starts_with(kPissa); }

std::optional<int> power_steps(const LoraConfig& lora) {
  if (!lora.init_lora_weights.starts_with(kPissaSteps)) return std::nullopt;
  return std::stoi(lora.init_lora_weights.substr(std::string(kPissaSteps).size()));
}

bool starts_from_base(const LoraConfig& lora) {
  return lora.use_dora || !lora.trainable_token_indices.empty() || is_pissa(lora) || lora.init_lora_weights == kLoftq;
}

LoraConfig of_original_base(LoraConfig lora) {
  const double alpha = lora.rslora ? std::sqrt(2.0) : 2;
  lora.r *= 2;
  lora.alpha *= alpha;
  for (auto& [pattern, rank] : lora.rank_pattern) rank *= 2;
  for (auto& [pattern, own] : lora.alpha_pattern) own *= alpha;
  lora.init_lora_weights = LoraConfig().init_lora_weights;
  return lora;
}

}  // namespace gantry::models
