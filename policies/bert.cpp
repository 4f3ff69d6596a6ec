#include "gantry/policies/bert.h"

#include "gantry/models/text_rows.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {

namespace {

ShardPlan shards_of(const models::BertImpl& model) {
  const std::int64_t head = model.config.head_size();
  ShardPlan plan = {{"embeddings.word_embeddings", Vocab{}},
                    {"layers.*.attention_output.dense", Row{.unit = head}},
                    {"layers.*.intermediate", Column{}},
                    {"layers.*.output.dense", Row{}}};
  if (!model.config.rotary)  // positions, [tokens] or [samples, tokens]
    plan.push_back({"embeddings.position_embeddings", SequenceParallel{.dim = -1}});
  if (model.config.fused) {
    plan.push_back({"layers.*.self.Wqkv", Column{.segments = 3, .unit = head}});
    plan.push_back({"layers.*.gate", Column{}});
  } else {
    for (const char* part : {"query", "key", "value"})
      plan.push_back({std::string("layers.*.self.") + part, Column{.unit = head}});
  }
  plan.push_back({"embeddings", SequenceParallel{}});  // token types, norms and dropouts
  if (model.embeddings_project) plan.push_back({"embeddings_project", SequenceParallel{}});
  plan.push_back({"layers.*", SequenceParallel{}});
  if (model.cls) {
    plan.push_back({"cls.decoder", Column{}});
    plan.push_back({"cls", SequenceParallel{}});
    return plan;
  }
  // The other heads read the full sequence, or its first token.
  plan.push_back({"full_sequence", PrepareInput{.from = Shard{1}, .to = Replicate{}}});
  if (model.pooler) plan.push_back({"pooler", FullSequence{}});
  if (model.pooler_dropout) plan.push_back({"pooler_dropout", FullSequence{}});
  if (model.dropout) plan.push_back({"dropout", FullSequence{}});
  if (model.classifier) plan.push_back({"classifier", FullSequence{}});
  if (model.qa_outputs) plan.push_back({"qa_outputs", FullSequence{}});
  return plan;
}

StageLayout stages_of(const models::BertImpl& model) {
  StageLayout layout{.first = {"embeddings"}, .repeated = "layers", .last = {}};
  if (model.embeddings_project) layout.first.emplace_back("embeddings_project");
  for (const char* part :
       {"cls", "full_sequence", "pooler_dropout", "pooler", "dropout", "classifier", "qa_outputs", models::kSamples})
    if (model.named_children().contains(part)) layout.last.push_back(part);
  return layout;
}

}  // namespace

ModelSplit BertPolicy::split(const models::BertImpl& model) const {
  return encoder_split(model, shards_of(model), stages_of(model), model.cls ? "cls.decoder" : "");
}

SharedParameters BertPolicy::shared_parameters(const models::BertImpl& model) const {
  if (!model.cls || !model.config.tie_word_embeddings) return {};
  return {{"embeddings.word_embeddings.weight", "cls.decoder.weight"}};
}

}  // namespace gantry
