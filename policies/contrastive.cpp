#include "gantry/policies/contrastive.h"

#include "gantry/models/text_rows.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {

namespace {

ShardPlan shards_of(const models::ContrastiveImpl& model) {
  ShardPlan plan;
  for (auto& [path, style] : models::contrastive_shards(model.spec)) plan.push_back({path, std::move(style)});
  for (const char* full : {"text_model", "vision_model", "logit_scale"}) plan.push_back({full, FullSequence{}});
  if (!model.spec.is_clip) plan.push_back({"logit_bias", FullSequence{}});
  if (model.spec.is_clip)
    for (const char* full : {"text_projection", "visual_projection"}) plan.push_back({full, FullSequence{}});
  return plan;
}

StageLayout stages_of(const models::ContrastiveImpl& model) {
  StageLayout layout{
      .first = {"text_model.embeddings", "vision_model.embeddings"},
      .repeated = {{"text_model.encoder.layers"}, {"vision_model.encoder.layers"}},
      .last = {"text_model.final_layer_norm", "vision_model.post_layernorm", models::kSamples, "logit_scale"}};
  const std::vector<std::string> of_clip = {"vision_model.pre_layrnorm", "text_projection", "visual_projection"},
                                 of_siglip = {"text_model.head", "vision_model.head", "logit_bias"};
  const auto& further = model.spec.is_clip ? of_clip : of_siglip;
  layout.last.insert(layout.last.end(), further.begin(), further.end());
  return layout;
}

}  // namespace

ModelSplit ContrastivePolicy::split(const models::ContrastiveImpl& model) const {
  ModelSplit split{.shards = shards_of(model), .stages = stages_of(model), .continuation = {.is_possible = false}};
  split.batch = {.tokens_per_sample = [](const TensorDict&) { return 1; }, .between = {}};
  return split;
}

}  // namespace gantry
