// The common part of the policies of models::TextEncoder.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gantry/models/text_encoder.h"
#include "gantry/policies/policy.h"
#include "gantry/policies/token_streams.h"

namespace gantry {

// True if the head has an output for each token.
inline bool reads_each_token(models::BertHead head) {
  return head == models::BertHead::kMaskedLm || head == models::BertHead::kQuestionAnswering ||
         head == models::BertHead::kTokenClassification;
}

template <class Model>
class TextEncoderPolicy : public PolicyFor<Model>, public SharesStreams {
 public:
  // The work of a head that reads only the first token does not grow with the tokens.
  LayerWork layer_work(const Model& model) const override {
    LayerWork work = PolicyFor<Model>::layer_work(model);
    if (!reads_each_token(model.config.head)) work.last = 0;
    return work;
  }
  // Multiple choice has several sequences per sample.
  std::optional<AttentionHeads> context_heads(const Model& model) const override {
    if (model.config.head == models::BertHead::kMultipleChoice) return std::nullopt;
    const int heads = static_cast<int>(model.config.num_attention_heads);
    return AttentionHeads{heads, heads};
  }
  std::vector<TokenStream> token_streams(const torch::nn::Module& model, const TensorDict& batch) const override {
    TokenStream stream{.tokens = tokens_per_sample(batch),
                       .entries = {"input_ids", "attention_mask", "token_type_ids", "position_ids", "document_ids"}};
    if (!gathers_outputs(model)) stream.entries.push_back("labels");
    return {stream};
  }
  bool gathers_outputs(const torch::nn::Module& model) const override {
    const auto head = dynamic_cast<const Model&>(model).config.head;
    return head != models::BertHead::kMaskedLm && head != models::BertHead::kTokenClassification;
  }
  Continuation continuation(const Model&) const override { return {.is_possible = false}; }
  // For multiple choice: the tokens of one choice.
  std::int64_t tokens_per_sample(const TensorDict& batch) const override {
    const torch::Tensor ids = batch.get("input_ids");
    return ids.defined() && ids.dim() == 3 ? ids.size(2) : Policy::tokens_per_sample(batch);
  }
  std::vector<std::string> entries_between() const override {
    return {"attention_mask", "document_ids", "position_ids"};
  }
};

}  // namespace gantry
