#include "gantry/policies/llama.h"

#include <torch/torch.h>

namespace gantry {

ShardPlan LlamaPolicy::shard_plan(const models::LlamaImpl& model) const {
  const std::int64_t head = model.config.head_dim, heads = model.config.num_attention_heads;
  return {{"layers.*.self_attn.q_proj", Column{.unit = head}},
          {"layers.*.self_attn.k_proj", Column{.unit = head, .users = heads}},
          {"layers.*.self_attn.v_proj", Column{.unit = head, .users = heads}},
          {"layers.*.self_attn.o_proj", Row{.unit = head}},
          {"layers.*.mlp.gate_proj", Column{}},
          {"layers.*.mlp.up_proj", Column{}},
          {"layers.*.mlp.down_proj", Row{}},
          {"embed_tokens", Vocab{}},
          {"lm_head", Column{}},
          {"layers.*", SequenceParallel{}},  // norms
          {"norm", SequenceParallel{}}};
}

StageLayout LlamaPolicy::stage_layout(const models::LlamaImpl&) const {
  return {.first = {"embed_tokens"}, .repeated = "layers", .last = {"norm", "lm_head"}};
}

SharedParameters LlamaPolicy::shared_parameters(const models::LlamaImpl& model) const {
  if (!model.config.tie_word_embeddings) return {};
  return {{"embed_tokens.weight", "lm_head.weight"}};
}

std::vector<SplitOutput> LlamaPolicy::split_outputs(const models::LlamaImpl&) const { return {{"logits", "lm_head"}}; }

Continuation LlamaPolicy::continuation(const models::LlamaImpl& model) const {
  return {.is_cached = true, .positions = model.config.max_position_embeddings};
}

}  // namespace gantry
