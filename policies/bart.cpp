#include "gantry/policies/bart.h"

#include "gantry/tensors/libtorch.h"

namespace gantry {

namespace {

StageLayout bart_stages() {
  const auto entrance = [](const std::string& stack) -> std::vector<std::string> {
    return {"shared", stack + ".embed_positions", stack + ".layernorm_embedding", stack + ".dropout"};
  };
  return {.first = entrance("encoder"),
          .repeated = {{"encoder.layers", {}}, {"decoder.layers", entrance("decoder")}},
          .last = {"lm_head", "final_logits_bias"}};
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
  split.stages = bart_stages();
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
