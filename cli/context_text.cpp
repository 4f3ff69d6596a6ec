#include "gantry/cli/context_text.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "gantry/core/config/byte_size.h"

namespace gantry::cli {
namespace {

constexpr int kMostListed = 16;  // ranks printed as text
constexpr std::size_t kMostRuns = 4;

std::string runs_text(const std::vector<Range>& runs) {
  std::vector<std::string> texts;
  for (const Range& run : runs) {
    if (texts.size() == kMostRuns) {
      texts.emplace_back("...");
      break;
    }
    texts.push_back(fmt::format("{} to {}", run.begin, run.end - 1));
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

}  // namespace

std::string to_text(const std::optional<planner::ResolvedContext>& context) {
  if (!context) return "";
  const auto& [choice, shard, bytes, of_mixer, kept, kept_alone] = *context;
  std::string text = fmt::format("\nsequences of {} tokens over {} ranks, by {} ({}), {}:\n", shard.tokens, shard.ranks,
                                 name_of(choice.method), choice.reason, name_of(shard.layout));
  for (int rank = 0; rank < std::min(shard.ranks, kMostListed); ++rank)
    text += fmt::format("  cp {}: tokens {} ({})\n", rank, runs_text(shard.runs(rank)), shard.size(rank));
  if (shard.ranks > kMostListed) text += fmt::format("  ... {} more\n", shard.ranks - kMostListed);
  std::vector<std::string> sent;
  for (const auto& [method, number] : bytes) sent.push_back(fmt::format("{} {}", method, number));
  if (!sent.empty())
    text += fmt::format("  bytes that a rank sends in the forward of one layer for one sample: {}\n",
                        fmt::join(sent, ", "));
  if (of_mixer > 0)
    text += fmt::format("  bytes that a rank sends in the forward of the largest mixer for one sample: {}\n", of_mixer);
  if (kept > 0)
    text += fmt::format(
        "  memory that the largest layer keeps of one sequence for its backward: {} per rank, {} with context 1\n",
        byte_size_text(static_cast<std::int64_t>(kept)), byte_size_text(static_cast<std::int64_t>(kept_alone)));
  return text;
}

nlohmann::ordered_json to_json(const planner::ResolvedContext& context) {
  nlohmann::ordered_json ranks = nlohmann::ordered_json::array();
  for (int rank = 0; rank < context.shard.ranks; ++rank) {
    nlohmann::ordered_json runs = nlohmann::ordered_json::array();
    for (const Range& run : context.shard.runs(rank)) runs.push_back({run.begin, run.end});
    ranks.push_back(std::move(runs));
  }
  nlohmann::ordered_json made = {{"method", name_of(context.choice.method)},
                                 {"reason", context.choice.reason},
                                 {"layout", name_of(context.shard.layout)},
                                 {"tokens", context.shard.tokens},
                                 {"runs", ranks},
                                 {"bytes_of_layer", context.bytes_of_layer}};
  if (context.bytes_of_mixer > 0) made["bytes_of_mixer"] = context.bytes_of_mixer;
  if (context.kept_bytes > 0)
    made["kept_bytes_of_layer"] = {{"rank", context.kept_bytes}, {"alone", context.kept_alone}};
  return made;
}

}  // namespace gantry::cli
