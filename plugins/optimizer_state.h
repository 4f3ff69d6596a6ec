// The parameters and the optimizer's state of one rank, for checkpoints.
#pragma once

#include "gantry/plugins/boosted.h"
#include "gantry/tensors/state_source.h"

namespace gantry {

class OptimizerState final : public StateSource {
 public:
  // `optimizer` may be null: then there are the parameters alone. `trained_alone`: frozen parameters are no part of the
  // state, which others give: the base of adapters.
  OptimizerState(BoostedModel& model, std::shared_ptr<BoostedOptimizer> optimizer, const PipelineStageManager& stages,
                 const ProcessGroupMesh& mesh, bool trained_alone)
      : model_(model), optimizer_(std::move(optimizer)), stages_(stages), mesh_(mesh), trained_alone_(trained_alone) {}

  // State tensors are made (zero) if the optimizer has not stepped yet, so that there is something to load into. Each
  // lies as what the optimizer steps does (MasterParameters::placement), and masters with it. Collective where those
  // are.
  // UsageError for an optimizer whose state is not known.
  std::vector<StateEntry> state_entries() override;
  int first_holder(const Placement& placement) const override { return stages_.rank_of(placement.stages.front()); }
  nlohmann::json state_numbers() const override;
  void load_state_numbers(const nlohmann::json& numbers) override;

 private:
  bool is_part_of_state(std::size_t parameter) const;

  BoostedModel& model_;
  std::shared_ptr<BoostedOptimizer> optimizer_;
  const PipelineStageManager& stages_;
  const ProcessGroupMesh& mesh_;
  bool trained_alone_;
};

}  // namespace gantry
