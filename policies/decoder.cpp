#include "gantry/policies/decoder.h"

#include <fmt/format.h>

#include "gantry/models/decoder_model_family.h"
#include "gantry/models/described/decoder_shards.h"
#include "gantry/models/described/work_of_keys.h"
#include "gantry/models/vision/images_by_sample.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

using models::DecoderNames;
using models::DecoderSpec;

std::vector<std::string> encoder_modules(const models::VisionSpec& vision) {
  if (vision.grid_tower) return {models::kGridTower};
  return {models::kVisionTower, models::kImageProjector};
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

ShardPlan DecoderPolicy::shard_plan(const models::DecoderImpl& model) const {
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
  if (spec.vision) {
    for (const std::string& encoder : encoder_modules(*spec.vision)) plan.push_back({encoder, FullSequence{}});
    plan.push_back({models::kImageRows, PrepareInput{.from = Replicate{}, .to = Shard{1}}});
  }
  if (spec.labels > 0) {
    plan.push_back({models::kFullSequence, PrepareInput{.from = Shard{1}, .to = Replicate{}}});
    plan.push_back({names.head, FullSequence{}});
  }
  if (spec.embedding_width > 0)
    for (const auto& projection : {names.project_in, names.project_out})
      plan.push_back({projection, SequenceParallel{}});
  return plan;
}

StageLayout DecoderPolicy::stage_layout(const models::DecoderImpl& model) const {
  const DecoderNames& names = model.spec.names;
  StageLayout layout{.first = {names.tokens}, .repeated = names.layers, .last = {}};
  if (model.spec.vision) {
    for (const std::string& encoder : encoder_modules(*model.spec.vision)) layout.first.push_back(encoder);
    layout.first.emplace_back(models::kImageRows);
  }
  if (model.spec.embedding_width > 0) layout.first.push_back(names.project_in);
  if (model.spec.norm.exists()) layout.last.push_back(names.norm);
  if (model.spec.embedding_width > 0) layout.last.push_back(names.project_out);
  if (model.spec.labels > 0) layout.last.push_back(models::kFullSequence);
  layout.last.push_back(names.head);
  if (model.spec.learned_positions) layout.first.push_back(names.positions);
  if (!names.dropout.empty()) layout.first.push_back(names.dropout);
  if (model.has_embedding_noise()) layout.first.push_back(models::kEmbeddingNoise);
  if (model.spec.embedding_norm.exists()) layout.first.push_back(names.embedding_norm);
  return layout;
}

LayerWork DecoderPolicy::layer_work(const models::DecoderImpl& model) const {
  return models::layer_work_of(model.spec);
}

std::string DecoderPolicy::joint_loss(const models::DecoderImpl& model) const {
  return model.spec.router_loss > 0 ? "model.config.output_router_logits" : "";
}

std::optional<AttentionHeads> DecoderPolicy::context_heads(const models::DecoderImpl& model) const {
  models::require_context(model.spec, 2);
  if (model.spec.vision)
    throw ConfigError({"parallel.context",
                       fmt::format("the {} model has an image encoder, whose tokens attend in both directions or need "
                                   "full sequences",
                                   model.spec.family),
                       "1", "remove parallel.context, and use parallel.tensor with sequence_parallel instead"});
  return models::fewest_heads(model.spec);
}

bool DecoderPolicy::has_streams(const torch::nn::Module& model) const {
  return dynamic_cast<const models::DecoderImpl&>(model).spec.labels > 0;
}

std::vector<TokenStream> DecoderPolicy::token_streams(const torch::nn::Module&, const TensorDict& batch) const {
  return {{.tokens = tokens_per_sample(batch),
           .causal = true,
           .entries = {"input_ids", "attention_mask", "position_ids", "document_ids"}}};
}

std::optional<VocabularyModules> DecoderPolicy::vocabulary(const models::DecoderImpl& model) const {
  const DecoderSpec& spec = model.spec;
  if (spec.labels > 0 || spec.vision) return std::nullopt;
  return VocabularyModules{.embedding = spec.names.tokens,
                           .head = spec.names.head,
                           .scale = spec.logit_scale,
                           .soft_cap = spec.logit_soft_cap};
}

SharedParameters DecoderPolicy::shared_parameters(const models::DecoderImpl& model) const {
  const DecoderNames& names = model.spec.names;
  if (!model.spec.tied) return {};
  return {{names.tokens + ".weight", names.head + ".weight"}};
}

std::vector<SplitOutput> DecoderPolicy::split_outputs(const models::DecoderImpl& model) const {
  if (model.spec.labels > 0) return {};
  return {{"logits", model.spec.names.head}};
}

Continuation DecoderPolicy::continuation(const models::DecoderImpl& model) const {
  if (model.spec.labels > 0) return {.is_possible = false};
  Continuation continuation{.is_cached = true, .positions = model.spec.unlimited_positions ? 0 : model.spec.positions};
  if (model.spec.vision)
    continuation.with_images = [vision = *model.spec.vision](TensorDict batch) {
      return models::prompt_images(std::move(batch), vision);
    };
  return continuation;
}

void add_decoder_family(const models::DecoderFamily& family) {
  models::families().add(family.model_type, models::model_family(family));
  policies().Registry::add(family.model_type,
                           [type = family.model_type] { return std::make_shared<const DecoderPolicy>(type); });
}

}  // namespace gantry
