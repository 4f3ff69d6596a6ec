#include "gantry/policies/vit.h"

#include "gantry/tensors/libtorch.h"

namespace gantry {

ShardPlan VitPolicy::shard_plan(const models::VitImpl& model) const {
  const std::int64_t head = model.config.hidden_size / model.config.num_attention_heads;
  return {{"embeddings", FullSequence{}},  // patches are computed on every rank, and sharded after the embedding
          {"enter", PrepareInput{.from = Replicate{}, .to = Shard{1}}},
          {"layers.*.attention.query", Column{.unit = head}},
          {"layers.*.attention.key", Column{.unit = head}},
          {"layers.*.attention.value", Column{.unit = head}},
          {"layers.*.attention.output", Row{.unit = head}},
          {"layers.*.intermediate", Column{}},
          {"layers.*.output", Row{}},
          {"layers.*", SequenceParallel{}},
          {"layernorm", SequenceParallel{}},
          {"full_sequence", PrepareInput{.from = Shard{1}, .to = Replicate{}}},
          {"classifier", FullSequence{}}};
}

StageLayout VitPolicy::stage_layout(const models::VitImpl&) const {
  return {.first = {"embeddings", "enter"}, .repeated = "layers", .last = {"layernorm", "full_sequence", "classifier"}};
}

// The classifier looks at the first token alone.
LayerWork VitPolicy::layer_work(const models::VitImpl& model) const {
  LayerWork work = PolicyFor::layer_work(model);
  work.last = 0;
  return work;
}

std::optional<AttentionHeads> VitPolicy::context_heads(const models::VitImpl& model) const {
  const int heads = static_cast<int>(model.config.num_attention_heads);
  return AttentionHeads{heads, heads};
}

std::vector<TokenStream> VitPolicy::token_streams(const torch::nn::Module& model, const TensorDict&) const {
  return {{.tokens = dynamic_cast<const models::VitImpl&>(model).config.tokens(), .entries = {}}};
}

Continuation VitPolicy::continuation(const models::VitImpl&) const { return {.is_possible = false}; }

}  // namespace gantry
