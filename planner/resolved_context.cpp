#include "gantry/planner/resolved_context.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "gantry/core/error.h"
#include "gantry/models/described/mixers/mixer_kind.h"
#include "gantry/models/described/work_of_keys.h"
#include "gantry/planner/config.h"
#include "gantry/planner/estimate.h"

namespace gantry::planner {
namespace {

std::int64_t bytes_of(const std::string& precision) {
  if (precision == "float64") return 8;
  return precision == "float32" ? 4 : 2;
}

// Returns the number of heads of an encoder, by the key and default of its family; the smaller one of two stacks.
int encoder_heads(const nlohmann::json& keys, const std::string& family) {
  if (family == "t5") return keys.value("num_heads", 8);
  if (family == "mt5" || family == "umt5") return keys.value("num_heads", 6);
  if (family == "distilbert") return keys.value("n_heads", keys.value("num_attention_heads", 12));
  if (family == "nomic_bert") return keys.value("num_attention_heads", keys.value("n_head", 12));
  if (family == "bart" || family == "pegasus")
    return std::min(keys.value("encoder_attention_heads", 16), keys.value("decoder_attention_heads", 16));
  if (family == "whisper")
    return std::min(keys.value("encoder_attention_heads", 6), keys.value("decoder_attention_heads", 6));
  return keys.value("num_attention_heads", family == "electra" ? 4 : 12);
}

// Returns the number of tokens in its layers. For images and speech the model defines it.
std::int64_t encoder_tokens(const Config& config, const nlohmann::json& keys) {
  if (config.model.policy == "whisper") return keys.value("max_source_positions", std::int64_t{1500});
  if (config.model.policy != "vit") return config.data.sequence_length;
  const std::int64_t side = keys.value("image_size", std::int64_t{224}) / keys.value("patch_size", std::int64_t{16});
  return side * side + 1;
}

// Returns the number of elements that a rank sends in the forward of one layer with a mixer, for the mixer with the
// most.
std::int64_t mixer_elements(const models::DecoderSpec& spec, const SequenceShard& shard, int tensor) {
  double most = 0;
  for (const models::LayerSpec& layer : spec.layers)
    if (layer.mixer) most = std::max(most, layer.mixer->work().exchanged_of(tensor, shard.ranks));
  return static_cast<std::int64_t>(most * static_cast<double>(shard.size(0)) * (shard.ranks - 1) / shard.ranks);
}

// Sets the memory of models and layouts that plan_request() supports.
void set_memory(const Config& config, ResolvedContext& context) try {
  const PlanRequest request = plan_request(config);
  const auto most = [&](int ranks) {
    Layout layout = request.stated;
    layout.microbatch = 1;
    layout.context = ranks;
    double bytes = 0;
    for (const auto& layer : request.workload.model.layers)
      bytes = std::max(bytes, kept_bytes(request.workload, layer, layout));
    return bytes;
  };
  context.kept_bytes = most(config.parallel.context);
  context.kept_alone = most(1);
} catch (const ConfigError&) {
}

}  // namespace

std::optional<ResolvedContext> resolve_context(const Config& config, const nlohmann::json& model_keys) {
  const ParallelConfig& parallel = config.parallel;
  if (parallel.context == 1 || config.data.format.empty()) return std::nullopt;
  const auto spec = models::described_decoder(model_keys, config.model.policy);
  if (spec) models::require_context(*spec, parallel.context, parallel.tensor);
  const int of_encoder = encoder_heads(model_keys, config.model.policy);
  const AttentionHeads heads = spec ? models::fewest_heads(*spec) : AttentionHeads{of_encoder, of_encoder};
  const std::int64_t tokens = spec ? config.data.sequence_length : encoder_tokens(config, model_keys);
  ResolvedContext context{.choice = choose_context(context_request(parallel), heads, {config.data.sequence_length}),
                          .shard = {}};
  context.shard = context.choice.split(tokens, parallel.context, /*causal=*/spec.has_value());
  if (!spec || spec->layers.empty()) return context;
  set_memory(config, context);
  context.bytes_of_mixer = mixer_elements(*spec, context.shard, parallel.tensor) * bytes_of(config.precision);
  const auto attends = std::ranges::find_if(spec->layers, &models::LayerSpec::has_attention);
  if (attends == spec->layers.end()) return context;
  const AttentionHeads local{heads.heads / parallel.tensor, std::max(1, heads.key_heads / parallel.tensor)};
  const auto add_bytes = [&](const ContextChoice& choice) {
    context.bytes_of_layer[name_of(choice.method)] =
        context_elements(choice, tokens, parallel.context, local, attends->attention.head_size) *
        bytes_of(config.precision);
  };
  add_bytes({ContextMethod::kAllGather, ""});
  add_bytes({ContextMethod::kRing, ""});
  if (parallel.context <= local.heads) add_bytes({ContextMethod::kUlysses, ""});
  add_bytes(context.choice);
  return context;
}

}  // namespace gantry::planner
