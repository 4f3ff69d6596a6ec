#include "gantry/policies/gpt2.h"

#include <torch/torch.h>

namespace gantry {

ShardPlan Gpt2Policy::shard_plan(const models::Gpt2Impl& model) const {
  const std::int64_t head_size = model.config.n_embd / model.config.n_head;
  return {{"h.*.attn.qkv", Column{.segments = 3, .unit = head_size}},
          {"h.*.attn.proj", Row{.unit = head_size}},
          {"h.*.mlp.up", Column{}},
          {"h.*.mlp.down", Row{}},
          {"wte", Vocab{}},
          {"wpe", SequenceParallel{.dim = -1}},  // looks up positions, [tokens] or [samples, tokens]
          {"lm_head", Column{}},
          {"drop", SequenceParallel{}},
          {"h.*", SequenceParallel{}},  // norms and dropouts
          {"ln_f", SequenceParallel{}}};
}

StageLayout Gpt2Policy::stage_layout(const models::Gpt2Impl&) const {
  return {.first = {"wte", "wpe", "drop"}, .repeated = "h", .last = {"ln_f", "lm_head"}};
}

SharedParameters Gpt2Policy::shared_parameters(const models::Gpt2Impl& model) const {
  if (!model.config.tie_word_embeddings) return {};
  return {{"wte.weight", "lm_head.weight"}};
}

std::vector<SplitOutput> Gpt2Policy::split_outputs(const models::Gpt2Impl&) const { return {{"logits", "lm_head"}}; }

Continuation Gpt2Policy::continuation(const models::Gpt2Impl& model) const {
  return {.is_cached = true, .positions = model.config.n_positions};
}

}  // namespace gantry
