#include "gantry/cli/context_picture.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gantry/models/described/work_of_keys.h"

namespace gantry::cli {
namespace {

constexpr int kMostListed = 16;  // that the text lists
constexpr std::size_t kMostRuns = 4;

std::int64_t bytes_of(const std::string& precision) {
  if (precision == "float64") return 8;
  return precision == "float32" ? 4 : 2;
}

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

std::optional<ContextPicture> picture_context(const Config& config, const nlohmann::json& model_keys) {
  const ParallelConfig& parallel = config.parallel;
  if (parallel.context == 1 || config.data.format.empty()) return std::nullopt;
  const auto spec = models::described_decoder(model_keys, config.model.policy);
  const int encoder_heads = model_keys.value("num_attention_heads", 12);  // BERT's key and default
  const AttentionHeads heads = spec ? models::fewest_heads(*spec) : AttentionHeads{encoder_heads, encoder_heads};
  const std::int64_t tokens = config.data.sequence_length;
  ContextPicture picture{.choice = choose_context(parallel, heads), .cut = {}, .bytes_of_layer = {}};
  picture.cut = picture.choice.cut(tokens, parallel.context);
  if (!spec || spec->layers.empty()) return picture;
  const AttentionHeads local{heads.heads / parallel.tensor, std::max(1, heads.key_heads / parallel.tensor)};
  const auto note = [&](const ContextChoice& choice) {
    picture.bytes_of_layer[name_of(choice.method)] =
        context_elements(choice, tokens, parallel.context, local, spec->layers.front().attention.head_size) *
        bytes_of(config.precision);
  };
  note({ContextMethod::kAllGather, ""});
  note({ContextMethod::kRing, ""});
  if (parallel.context <= local.heads) note({ContextMethod::kUlysses, ""});
  note(picture.choice);
  return picture;
}

std::string to_text(const std::optional<ContextPicture>& picture) {
  if (!picture) return "";
  const auto& [choice, cut, bytes] = *picture;
  std::string text = fmt::format("\nsequences of {} tokens over {} ranks, by {} ({}), {}:\n", cut.tokens, cut.ranks,
                                 name_of(choice.method), choice.reason, name_of(cut.layout));
  for (int rank = 0; rank < std::min(cut.ranks, kMostListed); ++rank)
    text += fmt::format("  cp {}: tokens {} ({})\n", rank, runs_text(cut.runs(rank)), cut.size(rank));
  if (cut.ranks > kMostListed) text += fmt::format("  ... {} more\n", cut.ranks - kMostListed);
  std::vector<std::string> sent;
  for (const auto& [method, number] : bytes) sent.push_back(fmt::format("{} {}", method, number));
  if (!sent.empty())
    text += fmt::format("  bytes that a rank sends for a layer's forward of a sample: {}\n", fmt::join(sent, ", "));
  return text;
}

nlohmann::ordered_json to_json(const ContextPicture& picture) {
  nlohmann::ordered_json ranks = nlohmann::ordered_json::array();
  for (int rank = 0; rank < picture.cut.ranks; ++rank) {
    nlohmann::ordered_json runs = nlohmann::ordered_json::array();
    for (const Range& run : picture.cut.runs(rank)) runs.push_back({run.begin, run.end});
    ranks.push_back(std::move(runs));
  }
  return {{"method", name_of(picture.choice.method)},
          {"reason", picture.choice.reason},
          {"layout", name_of(picture.cut.layout)},
          {"tokens", picture.cut.tokens},
          {"runs", ranks},
          {"bytes_of_layer", picture.bytes_of_layer}};
}

}  // namespace gantry::cli
