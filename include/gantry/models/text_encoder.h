// The common part of models that read text in both directions: an embedding, one list of layers, and a head, over
// stages, sequences that ranks share, and multiple choice.
#pragma once

#include <memory>

#include <torch/nn/modules/container/modulelist.h>

#include "gantry/models/described/bert_config.h"
#include "gantry/nn/prepare_input.h"
#include "gantry/nn/stage_context.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry::nn {
class GatherSamplesImpl;
}

namespace gantry::models {

class TextEncoderImpl : public torch::nn::Module {
 public:
  explicit TextEncoderImpl(const BertConfig& config);

  // Runs the full model: {input_ids int64 [B, S]; optional: attention_mask, token_type_ids, position_ids, document_ids
  // [B, S]} -> the outputs that BertHead lists. For multiple choice all inputs are [B, choices, S], and document_ids
  // are rejected. The same holds for groups of texts (SentencePooling::compares), [B, texts, S].
  TensorDict forward(const TensorDict& inputs);
  // Runs one stage. Stages exchange {hidden [B, S, H]}, or [B, choices, S, H]. Throws InputError if S exceeds the
  // model's positions.
  TensorDict stage_forward(const StageContext& stage, const TensorDict& input);

  const BertConfig config;  // the sizes and the head
  torch::nn::ModuleList layers;
  nn::PrepareInput full_sequence{nullptr};  // null for a masked language model

 protected:
  // Returns the input of the first layer, [B, S, H].
  virtual torch::Tensor embed(const TensorDict& inputs, const nn::TokenContext& tokens) = 0;
  virtual LayerParts parts_of(int layer, const nn::TokenContext& tokens) = 0;
  // Changes the output of the last layer, [B, S, H] -> [B, S, H]. The default does nothing.
  virtual torch::Tensor finished(const torch::Tensor& hidden) { return hidden; }
  // `keep`: bool [B, S], the tokens that are not padding; undefined: all.
  virtual TensorDict head(const torch::Tensor& hidden, const torch::Tensor& keep) = 0;
  // Returns false if the head reads only the first token of a sequence.
  virtual bool reads_all_tokens() const {
    return config.head == BertHead::kQuestionAnswering || config.head == BertHead::kNone;
  }

 private:
  void check_tokens(const TensorDict& inputs, const nn::TokenContext& tokens) const;
  TensorDict run_stage(const StageContext& stage, const TensorDict& input, const nn::TokenContext& tokens);
  TensorDict results(const torch::Tensor& hidden, const torch::Tensor& keep);
  TensorDict choose(const StageContext& stage, const TensorDict& input);

  std::shared_ptr<nn::GatherSamplesImpl> samples_;  // null unless embeddings are compared
};

}  // namespace gantry::models
