// The policy of models::Whisper: two lists of layers.
#pragma once

#include "gantry/models/whisper.h"
#include "gantry/policies/pair_policy.h"

namespace gantry {

class WhisperPolicy final : public StacksPolicy<models::WhisperImpl> {
 public:
  std::string name() const override { return "WhisperPolicy"; }
  ShardPlan shard_plan(const models::WhisperImpl& model) const override;
  StageLayout stage_layout(const models::WhisperImpl& model) const override;
  SharedParameters shared_parameters(const models::WhisperImpl& model) const override;
  std::vector<SplitOutput> split_outputs(const models::WhisperImpl& model) const override;
  Continuation continuation(const models::WhisperImpl& model) const override;
  std::vector<TokenStream> token_streams(const torch::nn::Module& model, const TensorDict& batch) const override;
  std::vector<std::string> entries_between() const override {
    return {"decoder_input_ids", "decoder_attention_mask", "labels"};
  }
};

}  // namespace gantry
