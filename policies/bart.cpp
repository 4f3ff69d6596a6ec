#include "gantry/policies/bart.h"

#include "gantry/tensors/libtorch.h"

namespace gantry {

namespace {

StageLayout stages_of(const models::BartImpl& model) {
  const bool before = model.config.norms_before;
  const auto entrance = [&](const std::string& stack) {
    std::vector<std::string> paths = {"shared", stack + ".embed_positions", stack + ".dropout"};
    if (!before) paths.push_back(stack + ".layernorm_embedding");
    return paths;
  };
  StageLayout stages{.first = entrance("encoder"), .repeated = {}, .last = {"lm_head", "final_logits_bias"}};
  std::vector<std::string> between = entrance("decoder");
  if (before) {
    between.emplace_back("encoder.layer_norm");
    stages.last.emplace_back("decoder.layer_norm");
  }
  stages.repeated = {{"encoder.layers", {}}, {"decoder.layers", std::move(between)}};
  return stages;
}

}  // namespace

ModelSplit BartPolicy::split(const models::BartImpl& model) const {
  ModelSplit split = pair_split(model, fewest_heads(model));
  ShardPlan& plan = split.shards;
  plan = {{"shared", Vocab{}}, {"lm_head", Column{}}, {"final_logits_bias", FullSequence{}}};
  add_layers(model, plan);
  for (const std::string stack : {"encoder", "decoder"}) {
    plan.push_back({stack + ".embed_positions", SequenceParallel{.dim = -1}});  // positions, [tokens] or [1, tokens]
    plan.push_back({stack, SequenceParallel{}});                                // norms, dropouts
  }
  split.stages = stages_of(model);
  split.split_outputs = {{"logits", "lm_head"}};
  split.continuation.positions = model.config.max_position_embeddings;
  return split;
}

SharedParameters BartPolicy::shared_parameters(const models::BartImpl& model) const {
  SharedParameters shared = {{"shared.weight"}};
  if (model.config.tie_word_embeddings) shared.back().push_back("lm_head.weight");
  return shared;
}

}  // namespace gantry
