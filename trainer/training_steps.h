// The steps of a run, each from its batch to the optimizer's step, and their measurements.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "gantry/booster/booster.h"
#include "gantry/comm/world.h"
#include "gantry/plugins/objective_parts.h"
#include "gantry/profiling/communication_meter.h"
#include "gantry/tensors/memory_meter.h"
#include "gantry/trainer/evaluator.h"
#include "gantry/trainer/expert_watch.h"
#include "gantry/trainer/metrics.h"
#include "gantry/trainer/run_listeners.h"
#include "gantry/trainer/run_report.h"
#include "gantry/trainer/step_parts.h"
#include "gantry/trainer/timeline.h"

namespace gantry {

class TrainingSteps {
 public:
  // All references must outlive this object. `memory` measures this rank's memory, and `meter` the
  // communication of the world's backend. `listeners` are notified during each step.
  TrainingSteps(const World& world, const Config& config, Booster& booster, const MemoryMeter& memory,
                CommunicationMeter& meter, RunListeners& listeners);

  // Also passes each action of the steps to `listener`.
  void set_listener(Plugin::ActionObserver listener) { timeline_.set_listener(std::move(listener)); }

  // Calls `prepare` with the batch of each step before it, and adds the rewards of `parts` to the metrics.
  void set_objective(ObjectiveParts parts, PrepareBatch prepare) {
    objective_ = std::move(parts);
    prepare_ = std::move(prepare);
  }

  // Calls `take` in place of the optimizer's step(), with the metrics that are known before it.
  void set_taking(std::function<bool(const StepMetrics&)> take) { take_ = std::move(take); }

  // Runs one step. Returns nothing if `stops` (see ExecuteOptions) aborted it; the state is then that after
  // the step before. Throws NumericalError if the loss or the gradient norm is not finite, unless the
  // optimizer skips such steps; rank 0 then prints a warning. Collective over the world.
  std::optional<StepMetrics> run(std::int64_t step, Boosted& boosted, const std::function<bool()>& stops);

  // Returns the timelines of the last step. Collective over pp.
  std::optional<StepPictures> pictures(const Boosted& boosted) const;
  // Returns the measurements of the steps so far, without the report's other facts. Collective over pp.
  RunFacts facts(const Boosted& boosted) const;
  const std::vector<std::int64_t>& peaks() const { return peaks_; }  // peak bytes by rank; empty without a step

 private:
  RewardMetrics rewards_of_step() const;
  // Passes the gradients to the callbacks, which may change them. Returns the norm of the result.
  double offer_gradients(std::int64_t step, Boosted& boosted);
  void give_up(const LoaderPlace& place, Boosted& boosted);
  void require_finite(std::int64_t step, double loss, double norm, const Boosted& boosted) const;
  void warn_of_skipped(std::int64_t step, double norm, const Boosted& boosted) const;

  const World& world_;
  Booster& booster_;
  const MemoryMeter& memory_;
  CommunicationMeter& meter_;
  RunListeners& listeners_;
  StepTimeline timeline_;
  StepParts parts_;
  ExpertTraffic traffic_;
  ObjectiveParts objective_;
  PrepareBatch prepare_;  // may be empty
  std::function<bool(const StepMetrics&)> take_;
  std::int64_t counted_ = 0;         // completed steps
  std::vector<std::int64_t> peaks_;  // peak bytes by rank
};

}  // namespace gantry
