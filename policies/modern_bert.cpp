#include "gantry/policies/modern_bert.h"

#include "gantry/models/text_rows.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {

namespace {

ShardPlan shards_of(const models::ModernBertImpl& model) {
  const std::int64_t head = model.config.hidden_size / model.config.num_attention_heads;
  ShardPlan plan = {{"embeddings.tok_embeddings", Vocab{}},
                    {"layers.*.attn.Wqkv", Column{.segments = 3, .unit = head}},
                    {"layers.*.attn.Wo", Row{.unit = head}},
                    {"layers.*.mlp.Wi", Column{.segments = 2}},
                    {"layers.*.mlp.Wo", Row{}},
                    {"embeddings", SequenceParallel{}},
                    {"layers.*", SequenceParallel{}},  // norms, dropouts
                    {"final_norm", SequenceParallel{}}};
  if (model.decoder) {
    plan.push_back({"decoder", Column{}});
    plan.push_back({"head", SequenceParallel{}});
    return plan;
  }
  plan.push_back({"full_sequence", PrepareInput{.from = Shard{1}, .to = Replicate{}}});
  if (model.classifier)
    for (const char* part : {"head", "drop", "classifier"}) plan.push_back({part, FullSequence{}});
  return plan;
}

StageLayout stages_of(const models::ModernBertImpl& model) {
  StageLayout layout{.first = {"embeddings"}, .repeated = "layers", .last = {"final_norm"}};
  for (const char* part : {"full_sequence", "head", "drop", "decoder", "classifier", models::kSamples})
    if (model.named_children().contains(part)) layout.last.push_back(part);
  return layout;
}

}  // namespace

ModelSplit ModernBertPolicy::split(const models::ModernBertImpl& model) const {
  return encoder_split(model, shards_of(model), stages_of(model), model.decoder ? "decoder" : "");
}

SharedParameters ModernBertPolicy::shared_parameters(const models::ModernBertImpl& model) const {
  if (!model.decoder || !model.config.tie_word_embeddings) return {};
  return {{"embeddings.tok_embeddings.weight", "decoder.weight"}};
}

}  // namespace gantry
