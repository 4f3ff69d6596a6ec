// The policy of models::Vit.
#pragma once

#include "gantry/models/vit.h"
#include "gantry/policies/policy.h"

namespace gantry {

class VitPolicy final : public PolicyFor<models::VitImpl> {
 public:
  std::string name() const override { return "VitPolicy"; }
  ShardPlan shard_plan(const models::VitImpl& model) const override;
  LayerWork layer_work(const models::VitImpl& model) const override;
  StageLayout stage_layout(const models::VitImpl& model) const override;
  Continuation continuation(const models::VitImpl& model) const override;
  // One label each; the model knows its images' patches itself.
  std::int64_t tokens_per_sample(const TensorDict&) const override { return 1; }
  std::vector<std::string> entries_between() const override { return {}; }
};

}  // namespace gantry
