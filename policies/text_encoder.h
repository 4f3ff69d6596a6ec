// The common part of the policies of models::TextEncoder.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gantry/models/text_encoder.h"
#include "gantry/policies/policy.h"
#include "gantry/policies/text_groups.h"

namespace gantry {

// True if the head has an output for each token.
inline bool reads_each_token(models::BertHead head) {
  return head == models::BertHead::kMaskedLm || head == models::BertHead::kQuestionAnswering ||
         head == models::BertHead::kTokenClassification;
}

template <class Model>
class TextEncoderPolicy : public PolicyFor<Model> {
 protected:
  // `logits`: the module that computes the logits of all tokens; empty: another head.
  static ModelSplit encoder_split(const Model& model, ShardPlan shards, StageLayout stages, const char* logits) {
    const models::BertHead head = model.config.head;
    const bool has_groups = model.config.has_groups_of_texts();
    ModelSplit split{.shards = std::move(shards), .stages = std::move(stages), .continuation = {.is_possible = false}};
    split.work = weights_of_layers(split.stages, model);
    // The work of a head that reads only the first token does not grow with the tokens.
    if (!reads_each_token(head)) split.work->last = 0;
    if (*logits) split.split_outputs = {{"logits", logits}};
    if (has_groups)
      split.batch.tokens_per_sample = tokens_of_texts;
    else
      split.context = context_of(model);
    split.batch.between = {"attention_mask", "document_ids", "position_ids"};
    return split;
  }

 private:
  static ContextSplit context_of(const Model& model) {
    const int heads = static_cast<int>(model.config.num_attention_heads);
    const auto head = model.config.head;
    ContextSplit context{.heads = {heads, heads}};
    context.gathers_outputs = head != models::BertHead::kMaskedLm && head != models::BertHead::kTokenClassification;
    std::vector<std::string> entries = {"input_ids", "attention_mask", "token_type_ids", "position_ids",
                                        "document_ids"};
    if (!context.gathers_outputs) entries.emplace_back("labels");
    context.streams = [entries](const TensorDict& batch) -> std::vector<TokenStream> {
      return {{.tokens = BatchUse().tokens_of(batch), .entries = entries}};
    };
    return context;
  }
};

}  // namespace gantry
