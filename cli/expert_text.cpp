#include "gantry/cli/expert_text.h"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace gantry::cli {
namespace {

constexpr std::size_t kMostShown = 16;  // ranks printed as text

}  // namespace

std::string to_text(const std::optional<planner::ResolvedExperts>& experts) {
  if (!experts) return "";
  std::string text = fmt::format("\n{} experts over {} ranks, in {} layers, {} per token:\n", experts->experts,
                                 experts->held.size(), experts->layers, experts->used);
  for (std::size_t rank = 0; rank < std::min(experts->held.size(), kMostShown); ++rank) {
    const Range& held = experts->held[rank];
    text += fmt::format("  ep {}: experts {} to {} ({})\n", rank, held.begin, held.end - 1, held.size());
  }
  if (experts->held.size() > kMostShown) text += fmt::format("  ... {} more\n", experts->held.size() - kMostShown);
  if (experts->bytes > 0)
    text +=
        fmt::format("  bytes that a rank sends in an all-to-all if experts are chosen evenly: {}\n", experts->bytes);
  return text;
}

nlohmann::ordered_json to_json(const planner::ResolvedExperts& experts) {
  nlohmann::ordered_json held = nlohmann::ordered_json::array();
  for (const Range& range : experts.held) held.push_back({range.begin, range.end});
  return {{"experts", experts.experts},
          {"used", experts.used},
          {"layers", experts.layers},
          {"held", held},
          {"bytes_of_all_to_all", experts.bytes}};
}

}  // namespace gantry::cli
