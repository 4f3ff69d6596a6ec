// One call of execute_pipeline() for one model: the plan of the call, its microbatches, and the end of the step.
#pragma once

#include <cstdint>
#include <optional>

#include "gantry/nn/router_balance.h"
#include "gantry/plugins/call_plan.h"
#include "gantry/plugins/model_state.h"
#include "gantry/plugins/pipeline_step.h"
#include "gantry/plugins/step_counts.h"

namespace gantry {

class PipelineCall {
 public:
  // All arguments must outlive the call.
  PipelineCall(ModelState& state, Boosted& boosted, const ExecuteOptions& options);

  // For the contract, see Plugin::execute_pipeline(). Once per object. Collective over the world.
  StepResult run(const Batch& given);

 private:
  void plan(std::int64_t samples);
  void complete_plan(const StepCounts& counts, const Batch& batch);
  std::optional<double> share_of_sample(const StepCounts& counts) const;
  void begin_step(const StepCounts& counts);
  nn::RouterBalance balance_of(const Batch& full) const;
  int mtp_depths() const;
  std::vector<double> mtp_ratios_of(const Batch& full) const;
  StepCore core_of(const Batch& batch, const std::vector<Batch>& microbatches, const nn::RouterBalance& balance) const;
  PipelineStep make_step(StepCore& core);
  std::vector<Batch> microbatches_of(const Batch& batch) const;
  RandomContext random_of(const Batch& batch) const;
  bool run_actions(PipelineStep& step);
  bool end_step(bool done);
  StepResult result_of(const PipelineStep& step);
  schedule::Executor& executor() { return state_.executor_for(plan_.microbatches, !plan_.trains, plan_.gather); }

  ModelState& state_;
  PluginContext& plugin_;
  Boosted& boosted_;
  const ExecuteOptions& options_;
  const Criterion& criterion_;
  CallPlan plan_;
  std::optional<double> sample_share_;  // StepSettings::sample_share
};

}  // namespace gantry
