// The policy of models::Bert, with any of its heads, for the models of one family.
#pragma once

#include "gantry/models/bert.h"
#include "gantry/policies/policy.h"
#include "gantry/policies/token_streams.h"

namespace gantry {

class BertPolicy final : public PolicyFor<models::BertImpl>, public SharesStreams {
 public:
  explicit BertPolicy(std::string family) : family_(std::move(family)) {}

  std::string name() const override { return "BertPolicy"; }
  PolicyFit fit(const torch::nn::Module& model) const override;
  void validate_model(const models::BertImpl& model) const override;
  ShardPlan shard_plan(const models::BertImpl& model) const override;
  LayerWork layer_work(const models::BertImpl& model) const override;
  std::optional<AttentionHeads> context_heads(const models::BertImpl& model) const override;
  std::vector<TokenStream> token_streams(const torch::nn::Module& model, const TensorDict& batch) const override;
  // But for the heads whose outputs are of single tokens.
  bool gathers_outputs(const torch::nn::Module& model) const override;
  StageLayout stage_layout(const models::BertImpl& model) const override;
  SharedParameters shared_parameters(const models::BertImpl& model) const override;
  std::vector<SplitOutput> split_outputs(const models::BertImpl& model) const override;
  Continuation continuation(const models::BertImpl& model) const override;
  std::int64_t tokens_per_sample(const TensorDict& batch) const override;  // of multiple choice: of one choice
  std::vector<std::string> entries_between() const override {
    return {"attention_mask", "document_ids", "position_ids"};
  }

 private:
  std::string family_;
};

}  // namespace gantry
