#include "gantry/policies/decoder.h"

#include <fmt/format.h>

#include "gantry/core/sharding/adapter_split.h"
#include "gantry/models/decoder_model_family.h"
#include "gantry/models/described/decoder_shards.h"
#include "gantry/models/described/vision_modules.h"
#include "gantry/models/described/work_of_keys.h"
#include "gantry/models/hidden_states.h"
#include "gantry/models/text_rows.h"
#include "gantry/models/vision/images_by_sample.h"
#include "gantry/policies/text_groups.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

using models::DecoderNames;
using models::DecoderSpec;

// The modules of the encoder that contain all others.
std::vector<std::string> encoder_roots(const models::VisionSpec& vision) {
  if (vision.grid_tower) return {models::kGridTower};
  return {models::kVisionTower, models::kImageProjector};
}

// The modules between the embedding and the layers, and between the layers and the norm, of a model with streams.
std::vector<std::string> before_layers(const DecoderSpec& spec) {
  std::vector<std::string> paths;
  if (spec.layer_inputs) paths = {spec.names.layer_projection, spec.names.layer_projection_norm};
  if (spec.streams > 1) paths.push_back(spec.names.streams_in);
  return paths;
}

std::vector<std::string> after_layers(const DecoderSpec& spec) {
  if (spec.streams > 1) return {spec.names.streams_out};
  return {};
}

ShardPlan shards_of(const models::DecoderImpl& model) {
  const DecoderSpec& spec = model.spec;
  const DecoderNames& names = spec.names;
  ShardPlan plan;
  for (auto& [path, style] : models::decoder_shards(spec)) plan.push_back({path, std::move(style)});
  if (!spec.layers.empty()) plan.push_back({names.layers + ".*", SequenceParallel{}});  // norms, dropouts, routers
  if (spec.learned_positions)
    plan.push_back({names.positions, SequenceParallel{.dim = -1}});  // [tokens] or [samples, tokens]
  if (!names.dropout.empty()) plan.push_back({names.dropout, SequenceParallel{}});
  if (model.has_embedding_noise()) plan.push_back({models::kEmbeddingNoise, SequenceParallel{}});
  if (spec.embedding_norm.exists()) plan.push_back({names.embedding_norm, SequenceParallel{}});
  if (spec.norm.exists()) plan.push_back({names.norm, SequenceParallel{}});
  for (const auto& path : before_layers(spec)) plan.push_back({path, SequenceParallel{}});
  for (const auto& path : after_layers(spec)) plan.push_back({path, SequenceParallel{}});
  if (spec.vision) {
    for (const std::string& encoder : encoder_roots(*spec.vision)) plan.push_back({encoder, FullSequence{}});
    plan.push_back({models::kImageRows, PrepareInput{.from = Replicate{}, .to = Shard{1}}});
  }
  if (!models::predicts_tokens(spec))
    plan.push_back({models::kFullSequence, PrepareInput{.from = Shard{1}, .to = Replicate{}}});
  if (spec.labels > 0) plan.push_back({names.head, FullSequence{}});
  if (const std::string hidden = model.hidden_states_module(); hidden == models::kHiddenProjection)
    plan.push_back({hidden, Column{}});
  else if (!hidden.empty())
    plan.push_back({hidden, PrepareInput{.from = Shard{1}, .to = Replicate{}}});
  if (spec.embedding_width > 0)
    for (const auto& projection : {names.project_in, names.project_out})
      plan.push_back({projection, SequenceParallel{}});
  return plan;
}

// The modules before the layers of the decoder.
std::vector<std::string> embedding_modules(const models::DecoderImpl& model) {
  const DecoderSpec& spec = model.spec;
  const DecoderNames& names = spec.names;
  std::vector<std::string> paths = {names.tokens};
  if (spec.vision) paths.emplace_back(models::kImageRows);
  if (spec.embedding_width > 0) paths.push_back(names.project_in);
  if (spec.layer_inputs) paths.push_back(names.layer_tokens);
  for (const auto& path : before_layers(spec)) paths.push_back(path);
  if (spec.learned_positions) paths.push_back(names.positions);
  if (!names.dropout.empty()) paths.push_back(names.dropout);
  if (model.has_embedding_noise()) paths.emplace_back(models::kEmbeddingNoise);
  if (spec.embedding_norm.exists()) paths.push_back(names.embedding_norm);
  return paths;
}

// The modules after the layers.
std::vector<std::string> head_modules(const models::DecoderImpl& model) {
  const DecoderSpec& spec = model.spec;
  const DecoderNames& names = spec.names;
  std::vector<std::string> paths = after_layers(spec);
  if (spec.norm.exists() && spec.mtp_loss == 0) paths.push_back(names.norm);
  if (spec.embedding_width > 0) paths.push_back(names.project_out);
  if (!models::predicts_tokens(spec)) paths.emplace_back(models::kFullSequence);
  if (!spec.sentence) paths.push_back(names.head);
  if (const std::string hidden = model.hidden_states_module(); !hidden.empty()) paths.push_back(hidden);
  if (spec.sentence && spec.sentence->compares) paths.emplace_back(models::kSamples);
  return paths;
}

// The layers of an image encoder's tower run before those of the decoder.
StageLayout stages_of(const models::DecoderImpl& model) {
  const DecoderSpec& spec = model.spec;
  std::vector<std::string> embedding = embedding_modules(model);
  if (!spec.vision) return {.first = embedding, .repeated = spec.names.layers, .last = head_modules(model)};
  const models::EncoderPaths encoder = models::encoder_paths(*spec.vision);
  embedding.insert(embedding.end(), encoder.after.begin(), encoder.after.end());
  return {.first = encoder.before,
          .repeated = {{encoder.layers, {}}, {spec.names.layers, embedding}},
          .last = head_modules(model)};
}

std::string without_context(const DecoderSpec& spec) {
  if (spec.vision)
    return fmt::format(
        "the {} model has an image encoder, whose tokens attend in both directions or need full sequences",
        spec.family);
  return "";
}

// A head for labels reads the last token, which may be on any rank, and a sentence embedding several tokens. All ranks
// of parallel.context compute them.
ContextSplit context_of(const DecoderSpec& spec) {
  ContextSplit context{.heads = models::fewest_heads(spec)};
  context.objection = [spec](int ranks, int tensor) { return models::context_objection(spec, ranks, tensor); };
  if (models::predicts_tokens(spec)) return context;
  context.gathers_outputs = true;
  context.streams = [](const TensorDict& batch) -> std::vector<TokenStream> {
    return {{.tokens = BatchUse().tokens_of(batch),
             .causal = true,
             .entries = {"input_ids", "attention_mask", "position_ids", "document_ids"}}};
  };
  return context;
}

std::optional<VocabularyModules> vocabulary_of(const DecoderSpec& spec) {
  if (!models::predicts_tokens(spec) || spec.vision || spec.mtp_loss > 0) return std::nullopt;
  return VocabularyModules{.embedding = spec.names.tokens,
                           .head = spec.names.head,
                           .scale = spec.logit_scale,
                           .soft_cap = spec.logit_soft_cap};
}

}  // namespace

PolicyFit DecoderPolicy::fit(const torch::nn::Module& model) const {
  const auto* decoder = dynamic_cast<const models::DecoderImpl*>(&model);
  if (!decoder || (!family_.empty() && decoder->spec.family != family_)) return PolicyFit::kNone;
  return PolicyFor::fit(model);
}

void DecoderPolicy::validate_model(const models::DecoderImpl& model) const {
  if (!family_.empty() && model.spec.family != family_)
    throw ConfigError({"model.policy",
                       fmt::format("the policy is {}, but the model is a {}", family_, model.spec.family),
                       "the model's own family", fmt::format("set model.policy to {}", model.spec.family)});
}

ModelSplit DecoderPolicy::split(const models::DecoderImpl& model) const {
  const DecoderSpec& spec = model.spec;
  ModelSplit split{.shards = shards_of(model),
                   .stages = stages_of(model),
                   .work = models::layer_work_of(spec),
                   .vocabulary = vocabulary_of(spec),
                   .without_context = without_context(spec),
                   .joint_loss = spec.router_loss > 0 ? "model.config.output_router_logits" : ""};
  const bool has_groups = spec.sentence && spec.sentence->compares;
  if (has_groups) split.batch.tokens_per_sample = tokens_of_texts;
  if (split.without_context.empty() && !has_groups) split.context = context_of(spec);
  if (models::predicts_tokens(spec)) {
    split.split_outputs = {{"logits", spec.names.head}};
    if (const std::string hidden = model.hidden_states_module(); hidden == models::kHiddenProjection)
      split.split_outputs.push_back({models::kHiddenStates, hidden});
    split.continuation = {.is_cached = true, .positions = spec.unlimited_positions ? 0 : spec.positions};
    if (spec.vision)
      split.continuation.with_images = [vision = *spec.vision](TensorDict batch) {
        return models::completed_images(std::move(batch), vision);
      };
  } else {
    split.continuation = {.is_possible = false};
  }
  split.batch.between = {"attention_mask", "document_ids", "position_ids", "token_type_ids"};
  split.mtp_depths = models::mtp_depths(spec);
  if (split.mtp_depths > 0) split.batch.between.emplace_back("input_ids");
  if (spec.vision)
    for (const char* entry : {"input_ids", "image_sizes", "image_grid_thw"}) split.batch.between.emplace_back(entry);
  return split;
}

std::vector<std::string> DecoderPolicy::held_layers(const torch::nn::Module& model, int stage, int num_stages,
                                                    LayerRange layers) const {
  std::vector<std::string> held = PolicyFor::held_layers(model, stage, num_stages, layers);
  const DecoderSpec& spec = dynamic_cast<const models::DecoderImpl&>(model).spec;
  const int first = models::main_layers(spec), end = static_cast<int>(spec.layers.size());
  if (first == end || layers.end <= first || layers.begin >= end) return held;
  if (layers.begin > first || layers.end < end)
    throw ConfigError(
        {"schedule.layers",
         fmt::format("the layers of multi-token prediction, {} to {}, are in several stages", first, end - 1),
         "one stage for all of them", "move them into one stage"});
  held.push_back(spec.names.norm);  // before the first of these layers, which also look up tokens
  if (stage > 0) held.push_back(spec.names.tokens);
  return held;
}

SharedParameters DecoderPolicy::shared_parameters(const models::DecoderImpl& model) const {
  const DecoderNames& names = model.spec.names;
  SharedParameters shared;
  if (!model.spec.tied && model.spec.mtp_loss > 0) shared.push_back({names.tokens + ".weight"});
  if (!model.spec.tied) return shared;
  for (const std::string parameter : {"weight", kTrainedTokens})
    if (const std::string name = names.tokens + "." + parameter; model.named_parameters().contains(name))
      shared.push_back({name, names.head + "." + parameter});
  return shared;
}

void add_decoder_family(const models::DecoderFamily& family) {
  models::families().add(family.model_type, models::model_family(family));
  policies().Registry::add(family.model_type,
                           [type = family.model_type] { return std::make_shared<const DecoderPolicy>(type); });
}

}  // namespace gantry
