#include "gantry/cli/expert_diagram.h"

#include <algorithm>
#include <fmt/format.h>

#include "gantry/core/error.h"
#include "gantry/models/described/work_of_keys.h"

namespace gantry::cli {
namespace {

constexpr std::size_t kMostShown = 16;  // ranks printed as text

std::int64_t bytes_of_number(const std::string& precision) {
  if (precision == "float64") return 8;
  return precision == "float32" ? 4 : 2;
}

}  // namespace

std::optional<ExpertPicture> picture_experts(const Config& config, const nlohmann::json& model_keys, int samples) {
  const ParallelConfig& parallel = config.parallel;
  if (parallel.expert == 1) return std::nullopt;
  const auto spec = models::described_decoder(model_keys, config.model.policy);
  if (!spec) return std::nullopt;  // only the policy of a library knows
  ExpertPicture picture{.layers = 0};
  for (const auto& layer : spec->layers)
    if (layer.experts) {
      picture.experts = layer.experts->count;
      picture.used = layer.experts->used;
      ++picture.layers;
    }
  if (picture.layers == 0)
    throw ConfigError({"parallel.expert", fmt::format("the value is {}, but the model has no experts", parallel.expert),
                       "1, or a model with experts", "remove parallel.expert"});
  if (picture.experts < parallel.expert)
    throw ConfigError({"parallel.expert", fmt::format("{} ranks for {} experts", parallel.expert, picture.experts),
                       fmt::format("at most {}", picture.experts), "lower parallel.expert"});
  picture.held = partition(picture.experts, 1, parallel.expert);
  const std::int64_t tokens = static_cast<std::int64_t>(samples) * config.data.sequence_length /
                              (static_cast<std::int64_t>(parallel.tensor) * parallel.context);
  picture.bytes = tokens * picture.used * spec->hidden * bytes_of_number(config.precision) * (parallel.expert - 1) /
                  parallel.expert;
  return picture;
}

std::string to_text(const std::optional<ExpertPicture>& picture) {
  if (!picture) return "";
  std::string text = fmt::format("\n{} experts over {} ranks, in {} layers, {} per token:\n", picture->experts,
                                 picture->held.size(), picture->layers, picture->used);
  for (std::size_t rank = 0; rank < std::min(picture->held.size(), kMostShown); ++rank) {
    const Range& held = picture->held[rank];
    text += fmt::format("  ep {}: experts {} to {} ({})\n", rank, held.begin, held.end - 1, held.size());
  }
  if (picture->held.size() > kMostShown) text += fmt::format("  ... {} more\n", picture->held.size() - kMostShown);
  if (picture->bytes > 0)
    text +=
        fmt::format("  bytes that a rank sends in an all-to-all if experts are chosen evenly: {}\n", picture->bytes);
  return text;
}

nlohmann::ordered_json to_json(const ExpertPicture& picture) {
  nlohmann::ordered_json held = nlohmann::ordered_json::array();
  for (const Range& range : picture.held) held.push_back({range.begin, range.end});
  return {{"experts", picture.experts},
          {"used", picture.used},
          {"layers", picture.layers},
          {"held", held},
          {"bytes_of_all_to_all", picture.bytes}};
}

}  // namespace gantry::cli
