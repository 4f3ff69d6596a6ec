// One call of execute_pipeline() for one model: the plan of the call, its microbatches, and the end of the step.
#pragma once

#include <cstdint>
#include <optional>

#include "gantry/nn/router_balance.h"
#include "gantry/plugins/model_state.h"
#include "gantry/plugins/pipeline_step.h"
#include "gantry/plugins/step_counts.h"

namespace gantry {

// How a batch is run.
struct CallPlan {
  enum class Scattering { kNone, kAfterEachBackward, kAfterTheStep };

  bool trains = false;
  bool syncs = false;    // gradients, at its end
  bool joins = false;    // adds gradients to those of earlier calls
  bool adds = false;     // gradients to those of other calls, or others to its own
  bool is_full = false;  // one microbatch is all that the gradients are of
  int microbatches = 0;
  Scattering scattering = Scattering::kNone;
  std::optional<schedule::Gather> gather;  // if parameters are sharded
};

class PipelineCall {
 public:
  // All arguments must outlive the call.
  PipelineCall(ModelState& state, Boosted& boosted, const ExecuteOptions& options);

  // For the contract, see Plugin::execute_pipeline(). Once per object. Collective over the world.
  StepResult run(const Batch& given);

 private:
  void plan(std::int64_t samples);
  void complete_plan(const StepCounts& counts, const Batch& batch);
  void begin_step(const StepCounts& counts);
  nn::RouterBalance balance_of(const Batch& full) const;
  PipelineStep make_step(const Batch& batch, const nn::RouterBalance& balance);
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
};

}  // namespace gantry
