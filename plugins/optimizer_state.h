// The parameters and the optimizer's state of one rank, for checkpoints.
#pragma once

#include "gantry/plugins/boosted.h"
#include "gantry/tensors/state_source.h"

namespace gantry {

class OptimizerState final : public StateSource {
 public:
  // `optimizer` may be null: then there are the parameters alone.
  OptimizerState(BoostedModel& model, std::shared_ptr<BoostedOptimizer> optimizer, const PipelineStageManager& stages)
      : model_(model), optimizer_(std::move(optimizer)), stages_(stages) {}

  // State tensors are made (zero) if the optimizer has not stepped yet, so that there is something to load into. Those
  // of masters are gathered copies, which load_state_numbers() brings back to their ranges: collective over dp then.
  // UsageError for an optimizer whose state is not known.
  std::vector<StateEntry> state_entries() override;
  int first_holder(const Placement& placement) const override { return stages_.rank_of(placement.stages.front()); }
  nlohmann::json state_numbers() const override;
  void load_state_numbers(const nlohmann::json& numbers) override;

 private:
  // A gathered copy and the master's part that it stands for.
  struct Gathered {
    std::size_t parameter;
    torch::Tensor whole, part;
  };
  void add_entry(std::vector<StateEntry>& entries, std::size_t parameter, const std::string& kind,
                 const torch::Tensor& tensor, const std::string& fallback = "");
  // What the optimizer knows the parameter as.
  const torch::Tensor& stepped(std::size_t parameter) const;

  BoostedModel& model_;
  std::shared_ptr<BoostedOptimizer> optimizer_;
  const PipelineStageManager& stages_;
  std::vector<Gathered> gathered_;
};

}  // namespace gantry
