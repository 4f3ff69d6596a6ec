// The policy of models::Bert, with any of its heads.
#pragma once

#include "gantry/models/bert.h"
#include "gantry/policies/policy.h"

namespace gantry {

class BertPolicy final : public PolicyFor<models::BertImpl> {
 public:
  std::string name() const override { return "BertPolicy"; }
  ShardPlan shard_plan(const models::BertImpl& model) const override;
  LayerWork layer_work(const models::BertImpl& model) const override;
  StageLayout stage_layout(const models::BertImpl& model) const override;
  SharedParameters shared_parameters(const models::BertImpl& model) const override;
  std::vector<SplitOutput> split_outputs(const models::BertImpl& model) const override;
  Continuation continuation(const models::BertImpl& model) const override;
  std::vector<std::string> entries_between() const override {
    return {"attention_mask", "document_ids", "position_ids"};
  }
};

}  // namespace gantry
