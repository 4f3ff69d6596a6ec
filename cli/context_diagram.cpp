#include "gantry/cli/context_diagram.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gantry/core/byte_size.h"
#include "gantry/core/error.h"
#include "gantry/models/described/work_of_keys.h"
#include "gantry/planner/configured.h"
#include "gantry/planner/estimate.h"

namespace gantry::cli {
namespace {

constexpr int kMostListed = 16;  // ranks printed as text
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

// Returns the number of heads of an encoder, by the key and default of its family; the smaller one of two stacks.
int encoder_heads(const nlohmann::json& keys, const std::string& family) {
  if (family == "t5") return keys.value("num_heads", 8);
  if (family == "whisper")
    return std::min(keys.value("encoder_attention_heads", 6), keys.value("decoder_attention_heads", 6));
  return keys.value("num_attention_heads", 12);
}

// Returns the number of tokens in its layers. For images and speech the model defines it.
std::int64_t encoder_tokens(const Config& config, const nlohmann::json& keys) {
  if (config.model.policy == "whisper") return keys.value("max_source_positions", std::int64_t{1500});
  if (config.model.policy != "vit") return config.data.sequence_length;
  const std::int64_t side = keys.value("image_size", std::int64_t{224}) / keys.value("patch_size", std::int64_t{16});
  return side * side + 1;
}

// Uses the planner, which throws ConfigError for models and layouts that it does not support.
void note_memory(const Config& config, ContextPicture& picture) try {
  const planner::PlanRequest request = planner::plan_request(config);
  const auto most = [&](int context) {
    planner::Layout layout = request.stated;
    layout.microbatch = 1;
    layout.context = context;
    double bytes = 0;
    for (const auto& layer : request.workload.model.layers)
      bytes = std::max(bytes, planner::kept_bytes(request.workload, layer, layout));
    return bytes;
  };
  picture.kept_bytes = most(config.parallel.context);
  picture.kept_alone = most(1);
} catch (const ConfigError&) {
}

}  // namespace

std::optional<ContextPicture> picture_context(const Config& config, const nlohmann::json& model_keys) {
  const ParallelConfig& parallel = config.parallel;
  if (parallel.context == 1 || config.data.format.empty()) return std::nullopt;
  const auto spec = models::described_decoder(model_keys, config.model.policy);
  const int of_encoder = encoder_heads(model_keys, config.model.policy);
  const AttentionHeads heads = spec ? models::fewest_heads(*spec) : AttentionHeads{of_encoder, of_encoder};
  const std::int64_t tokens = spec ? config.data.sequence_length : encoder_tokens(config, model_keys);
  ContextPicture picture{.choice = choose_context(parallel, heads, {config.data.sequence_length}), .cut = {}};
  picture.cut = picture.choice.cut(tokens, parallel.context, /*causal=*/spec.has_value());
  if (!spec || spec->layers.empty()) return picture;
  note_memory(config, picture);
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
  const auto& [choice, cut, bytes, kept, kept_alone] = *picture;
  std::string text = fmt::format("\nsequences of {} tokens over {} ranks, by {} ({}), {}:\n", cut.tokens, cut.ranks,
                                 name_of(choice.method), choice.reason, name_of(cut.layout));
  for (int rank = 0; rank < std::min(cut.ranks, kMostListed); ++rank)
    text += fmt::format("  cp {}: tokens {} ({})\n", rank, runs_text(cut.runs(rank)), cut.size(rank));
  if (cut.ranks > kMostListed) text += fmt::format("  ... {} more\n", cut.ranks - kMostListed);
  std::vector<std::string> sent;
  for (const auto& [method, number] : bytes) sent.push_back(fmt::format("{} {}", method, number));
  if (!sent.empty())
    text += fmt::format("  bytes that a rank sends in the forward of one layer for one sample: {}\n",
                        fmt::join(sent, ", "));
  if (kept > 0)
    text += fmt::format(
        "  memory that the largest layer keeps of one sequence for its backward: {} per rank, {} with context 1\n",
        byte_size_text(static_cast<std::int64_t>(kept)), byte_size_text(static_cast<std::int64_t>(kept_alone)));
  return text;
}

nlohmann::ordered_json to_json(const ContextPicture& picture) {
  nlohmann::ordered_json ranks = nlohmann::ordered_json::array();
  for (int rank = 0; rank < picture.cut.ranks; ++rank) {
    nlohmann::ordered_json runs = nlohmann::ordered_json::array();
    for (const Range& run : picture.cut.runs(rank)) runs.push_back({run.begin, run.end});
    ranks.push_back(std::move(runs));
  }
  nlohmann::ordered_json made = {{"method", name_of(picture.choice.method)},
                                 {"reason", picture.choice.reason},
                                 {"layout", name_of(picture.cut.layout)},
                                 {"tokens", picture.cut.tokens},
                                 {"runs", ranks},
                                 {"bytes_of_layer", picture.bytes_of_layer}};
  if (picture.kept_bytes > 0)
    made["kept_bytes_of_layer"] = {{"rank", picture.kept_bytes}, {"alone", picture.kept_alone}};
  return made;
}

}  // namespace gantry::cli
