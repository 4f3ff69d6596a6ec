#include "gantry/models/described/rank_limits.h"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <vector>

#include "gantry/core/error.h"
#include "gantry/models/described/family_reader.h"
#include "gantry/models/described/mixers/mixer_kind.h"
#include "gantry/models/described/model_sizes.h"
#include "gantry/models/described/vision_modules.h"
#include "gantry/models/described/work_of_keys.h"

namespace gantry::models {
namespace {

std::string name_of_family(const nlohmann::json& keys, const std::string& family) {
  if (!family.empty() || !keys.is_object()) return family;
  const nlohmann::json type = keys.value("model_type", nlohmann::json(""));
  return type.is_string() ? type.get<std::string>() : "";
}

void require_tensor(const RankLimit& limit, int tensor) {
  if (tensor <= limit.ranks) return;
  throw ConfigError({"parallel.tensor", fmt::format("{} ranks for {}", tensor, limit.shared),
                     fmt::format("at most {}", limit.ranks), "lower parallel.tensor"});
}

// The fewest experts of a layer that has any; 0: the model has no experts.
std::int64_t fewest_experts(const DecoderSpec& spec) {
  std::int64_t fewest = 0;
  for (const LayerSpec& layer : spec.layers)
    if (layer.experts) fewest = fewest == 0 ? layer.experts->count : std::min(fewest, layer.experts->count);
  return fewest;
}

void require_experts(const DecoderSpec& spec, int ranks) {
  const std::int64_t experts = fewest_experts(spec);
  if (experts == 0)
    throw ConfigError({"parallel.expert", fmt::format("the value is {}, but the model has no experts", ranks),
                       "1, or a model with experts", "remove parallel.expert"});
  if (experts < ranks)
    throw ConfigError({"parallel.expert", fmt::format("{} ranks for {} experts", ranks, experts),
                       fmt::format("at most {}", experts), "lower parallel.expert"});
}

}  // namespace

std::optional<RankLimit> tensor_limit(const DecoderSpec& spec) {
  std::vector<RankLimit> limits;
  if (const std::int64_t heads = fewest_heads(spec).heads; heads > 0)
    limits.push_back({heads, fmt::format("{} query heads", heads)});
  for (const LayerSpec& layer : spec.layers) {
    if (!layer.mixer) continue;
    const std::int64_t most = layer.mixer->largest_tensor();
    limits.push_back({most, fmt::format("{} heads, groups or channels of the {}", most, layer.mixer->name())});
  }
  if (spec.vision) {
    const std::int64_t heads = spec.vision->tower.heads;
    limits.push_back({heads, fmt::format("{} heads of the image encoder", heads)});
  }
  const auto least = std::ranges::min_element(limits, {}, &RankLimit::ranks);
  return least == limits.end() ? std::nullopt : std::optional(*least);
}

void require_ranks(const nlohmann::json& model_keys, const std::string& family, const ParallelConfig& parallel) {
  if (parallel.tensor == 1 && parallel.expert == 1) return;
  const std::string name = name_of_family(model_keys, family);
  if (!find_family_reader(name)) return;  // the shard plan of the program's own family decides
  const auto spec = described_decoder(model_keys, name);
  if (spec && parallel.expert > 1) require_experts(*spec, parallel.expert);
  if (spec) {
    if (const auto limit = tensor_limit(*spec)) require_tensor(*limit, parallel.tensor);
  } else if (const std::int64_t heads = model_sizes(name, model_keys).fewest_heads; heads > 0) {
    require_tensor({heads, fmt::format("{} heads", heads)}, parallel.tensor);
  }
}

}  // namespace gantry::models
