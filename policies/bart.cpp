#include "gantry/policies/bart.h"

#include <algorithm>

#include "gantry/models/encoder_decoder.h"
#include "gantry/policies/decoder_length.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {

ShardPlan BartPolicy::shard_plan(const models::BartImpl& model) const {
  ShardPlan plan = {{"shared", Vocab{}}, {"lm_head", Column{}}, {"final_logits_bias", FullSequence{}}};
  const auto add_attention = [&](const std::string& path, std::int64_t heads) {
    const std::int64_t unit = model.config.d_model / heads;
    for (const char* part : {".q_proj", ".k_proj", ".v_proj"}) plan.push_back({path + part, Column{.unit = unit}});
    plan.push_back({path + ".out_proj", Row{.unit = unit}});
  };
  add_attention("encoder.layers.*.self_attn", model.config.encoder_attention_heads);
  add_attention("decoder.layers.*.self_attn", model.config.decoder_attention_heads);
  add_attention("decoder.layers.*.encoder_attn", model.config.decoder_attention_heads);
  for (const std::string stack : {"encoder", "decoder"}) {
    plan.push_back({stack + ".embed_positions", SequenceParallel{.dim = -1}});  // positions, [tokens] or [1, tokens]
    plan.push_back({stack + ".layers.*.fc1", Column{}});
    plan.push_back({stack + ".layers.*.fc2", Row{}});
    plan.push_back({stack, SequenceParallel{}});  // norms, dropouts
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

std::int64_t BartPolicy::tokens_per_sample(const TensorDict& batch) const { return decoder_length(batch); }

std::optional<AttentionHeads> BartPolicy::context_heads(const models::BartImpl& model) const {
  const int heads =
      static_cast<int>(std::min(model.config.encoder_attention_heads, model.config.decoder_attention_heads));
  return AttentionHeads{heads, heads};
}

std::vector<TokenStream> BartPolicy::token_streams(const torch::nn::Module&, const TensorDict& batch) const {
  return {encoder_stream(batch), decoder_stream(batch)};
}

TensorDict BartPolicy::completed(const torch::nn::Module& model, TensorDict batch) const {
  const auto& config = dynamic_cast<const models::BartImpl&>(model).config;
  batch.set("decoder_input_ids", models::decoder_tokens(batch, config.decoder_start_token_id, config.pad_token_id));
  return batch;
}

}  // namespace gantry
