#include "gantry/policies/bart.h"

#include "gantry/tensors/libtorch.h"

namespace gantry {

ShardPlan BartPolicy::shard_plan(const models::BartImpl& model) const {
  ShardPlan plan = {{"shared", Vocab{}}, {"lm_head", Column{}}, {"final_logits_bias", FullSequence{}}};
  add_layers(model, plan);
  for (const std::string stack : {"encoder", "decoder"}) {
    plan.push_back({stack + ".embed_positions", SequenceParallel{.dim = -1}});  // positions, [tokens] or [1, tokens]
    plan.push_back({stack, SequenceParallel{}});                                // norms, dropouts
  }
  return plan;
}

StageLayout BartPolicy::stage_layout(const models::BartImpl&) const {
  const auto entrance = [](const std::string& stack) -> std::vector<std::string> {
    return {"shared", stack + ".embed_positions", stack + ".layernorm_embedding", stack + ".dropout"};
  };
  return {.first = entrance("encoder"),
          .repeated = {{"encoder.layers", {}}, {"decoder.layers", entrance("decoder")}},
          .last = {"lm_head", "final_logits_bias"}};
}

SharedParameters BartPolicy::shared_parameters(const models::BartImpl& model) const {
  SharedParameters shared = {{"shared.weight"}};
  if (model.config.tie_word_embeddings) shared.back().push_back("lm_head.weight");
  return shared;
}

std::vector<SplitOutput> BartPolicy::split_outputs(const models::BartImpl&) const { return {{"logits", "lm_head"}}; }

Continuation BartPolicy::continuation(const models::BartImpl& model) const {
  return {.is_cached = true,
          .positions = model.config.max_position_embeddings,
          .start_token = model.config.decoder_start_token_id};
}

}  // namespace gantry
