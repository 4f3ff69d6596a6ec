// The policy of models::Bart: two lists of layers that share an embedding.
#pragma once

#include "gantry/models/bart.h"
#include "gantry/policies/policy.h"
#include "gantry/policies/token_streams.h"

namespace gantry {

class BartPolicy final : public PolicyFor<models::BartImpl>, public SharesStreams {
 public:
  std::string name() const override { return "BartPolicy"; }
  ShardPlan shard_plan(const models::BartImpl& model) const override;
  StageLayout stage_layout(const models::BartImpl& model) const override;
  SharedParameters shared_parameters(const models::BartImpl& model) const override;
  std::vector<SplitOutput> split_outputs(const models::BartImpl& model) const override;
  Continuation continuation(const models::BartImpl& model) const override;
  std::int64_t tokens_per_sample(const TensorDict& batch) const override;
  std::optional<AttentionHeads> context_heads(const models::BartImpl& model) const override;
  std::vector<TokenStream> token_streams(const torch::nn::Module& model, const TensorDict& batch) const override;
  TensorDict completed(const torch::nn::Module& model, TensorDict batch) const override;
  std::vector<std::string> entries_between() const override {
    return {"attention_mask", "decoder_input_ids", "decoder_attention_mask", "labels"};
  }
};

}  // namespace gantry
