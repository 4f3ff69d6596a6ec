// The parameters and the optimizer state of one rank, for checkpoints.
#pragma once

#include "gantry/plugins/boosted.h"
#include "gantry/tensors/state_source.h"

namespace gantry {

class OptimizerState final : public StateSource {
 public:
  // `optimizer` may be null: the state then consists of the parameters. `trained_alone`: frozen parameters
  // (the base of adapters) are not part of the state, because they are loaded from elsewhere.
  OptimizerState(BoostedModel& model, std::shared_ptr<BoostedOptimizer> optimizer, const PipelineStageManager& stages,
                 const ProcessGroupMesh& mesh, bool trained_alone)
      : model_(model), optimizer_(std::move(optimizer)), stages_(stages), mesh_(mesh), trained_alone_(trained_alone) {}

  // Creates state tensors (zero) if the optimizer has not stepped yet, so that they can be loaded. Each has
  // the placement of the tensor that the optimizer steps (MasterParameters::placement), like the masters.
  // Collective like MasterParameters. Throws UsageError for an optimizer whose state is unknown.
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
