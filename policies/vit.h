// The policy of models::Vit.
#pragma once

#include "gantry/models/vit.h"
#include "gantry/policies/policy.h"
#include "gantry/policies/token_streams.h"

namespace gantry {

class VitPolicy final : public PolicyFor<models::VitImpl>, public SharesStreams {
 public:
  std::string name() const override { return "VitPolicy"; }
  ShardPlan shard_plan(const models::VitImpl& model) const override;
  LayerWork layer_work(const models::VitImpl& model) const override;
  StageLayout stage_layout(const models::VitImpl& model) const override;
  Continuation continuation(const models::VitImpl& model) const override;
  std::optional<AttentionHeads> context_heads(const models::VitImpl& model) const override;
  // Of the patches, behind their embedding, and the class token, which the classifier reads.
  std::vector<TokenStream> token_streams(const torch::nn::Module& model, const TensorDict& batch) const override;
  bool gathers_outputs(const torch::nn::Module&) const override { return true; }
  // One label each; the model knows its images' patches itself.
  std::int64_t tokens_per_sample(const TensorDict&) const override { return 1; }
  std::vector<std::string> entries_between() const override { return {}; }
};

}  // namespace gantry
