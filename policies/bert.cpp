#include "gantry/policies/bert.h"

#include "gantry/policies/family_check.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {

PolicyFit BertPolicy::fit(const torch::nn::Module& model) const {
  const auto* bert = dynamic_cast<const models::BertImpl*>(&model);
  return bert && bert->config.family == family_ ? PolicyFor::fit(model) : PolicyFit::kNone;
}

void BertPolicy::validate_model(const models::BertImpl& model) const { validate_family(family_, model.config.family); }

ShardPlan BertPolicy::shard_plan(const models::BertImpl& model) const {
  const std::int64_t head = model.config.hidden_size / model.config.num_attention_heads;
  ShardPlan plan = {
      {"embeddings.word_embeddings", Vocab{}},
      {"embeddings.position_embeddings", SequenceParallel{.dim = -1}},  // positions, [tokens] or [samples, tokens]
      {"layers.*.self.query", Column{.unit = head}},
      {"layers.*.self.key", Column{.unit = head}},
      {"layers.*.self.value", Column{.unit = head}},
      {"layers.*.attention_output.dense", Row{.unit = head}},
      {"layers.*.intermediate", Column{}},
      {"layers.*.output.dense", Row{}},
      {"embeddings", SequenceParallel{}},  // token types, norms and dropouts
      {"layers.*", SequenceParallel{}}};
  if (model.cls) {
    plan.push_back({"cls.decoder", Column{}});
    plan.push_back({"cls", SequenceParallel{}});
    return plan;
  }
  // The other heads read the full sequence, or its first token.
  plan.push_back({"full_sequence", PrepareInput{.from = Shard{1}, .to = Replicate{}}});
  if (model.pooler) plan.push_back({"pooler", FullSequence{}});
  if (model.pooler_dropout) plan.push_back({"pooler_dropout", FullSequence{}});
  if (model.classifier) {
    plan.push_back({"classifier", FullSequence{}});
    plan.push_back({"dropout", FullSequence{}});
  }
  if (model.qa_outputs) plan.push_back({"qa_outputs", FullSequence{}});
  return plan;
}

StageLayout BertPolicy::stage_layout(const models::BertImpl& model) const {
  StageLayout layout{.first = {"embeddings"}, .repeated = "layers", .last = {}};
  for (const char* part : {"cls", "full_sequence", "pooler_dropout", "pooler", "dropout", "classifier", "qa_outputs"})
    if (model.named_children().contains(part)) layout.last.push_back(part);
  return layout;
}

// A head that looks at the first token alone is none of a token's work.
LayerWork BertPolicy::layer_work(const models::BertImpl& model) const {
  LayerWork work = PolicyFor::layer_work(model);
  const bool of_each_token =
      model.cls || model.qa_outputs || model.config.head == models::BertHead::kTokenClassification;
  if (!of_each_token) work.last = 0;
  return work;
}

std::optional<AttentionHeads> BertPolicy::context_heads(const models::BertImpl& model) const {
  if (model.config.head == models::BertHead::kMultipleChoice) return std::nullopt;  // several texts a sample
  const int heads = static_cast<int>(model.config.num_attention_heads);
  return AttentionHeads{heads, heads};
}

std::vector<TokenStream> BertPolicy::token_streams(const torch::nn::Module& model, const TensorDict& batch) const {
  TokenStream stream{.tokens = tokens_per_sample(batch),
                     .entries = {"input_ids", "attention_mask", "token_type_ids", "position_ids", "document_ids"}};
  if (!gathers_outputs(model)) stream.entries.push_back("labels");
  return {stream};
}

bool BertPolicy::gathers_outputs(const torch::nn::Module& model) const {
  const auto head = dynamic_cast<const models::BertImpl&>(model).config.head;
  return head != models::BertHead::kMaskedLm && head != models::BertHead::kTokenClassification;
}

SharedParameters BertPolicy::shared_parameters(const models::BertImpl& model) const {
  if (!model.cls || !model.config.tie_word_embeddings) return {};
  return {{"embeddings.word_embeddings.weight", "cls.decoder.weight"}};
}

std::vector<SplitOutput> BertPolicy::split_outputs(const models::BertImpl& model) const {
  if (!model.cls) return {};
  return {{"logits", "cls.decoder"}};
}

std::int64_t BertPolicy::tokens_per_sample(const TensorDict& batch) const {
  const torch::Tensor ids = batch.get("input_ids");
  return ids.defined() && ids.dim() == 3 ? ids.size(2) : Policy::tokens_per_sample(batch);
}

Continuation BertPolicy::continuation(const models::BertImpl&) const { return {.is_possible = false}; }

}  // namespace gantry
