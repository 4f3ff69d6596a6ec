// The steps of a run, each from its batch to the optimizer's step, and what is measured of them.
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
  // None is owned. The meters count this rank's memory and the communication of the world's backend; `listeners` hear
  // of the parts of each step.
  TrainingSteps(const World& world, const Config& config, Booster& booster, const MemoryMeter& memory,
                CommunicationMeter& meter, RunListeners& listeners);

  // Hands each action of the steps to `listener` too.
  void set_listener(Plugin::ActionObserver listener) { timeline_.set_listener(std::move(listener)); }

  // Calls `prepare` with the batch of each step before it, and adds the rewards of `parts` to the metrics.
  void set_objective(ObjectiveParts parts, PrepareBatch prepare) {
    objective_ = std::move(parts);
    prepare_ = std::move(prepare);
  }

  // Calls `take` in place of the optimizer's step(), with the metrics that are known before it.
  void set_taking(std::function<bool(const StepMetrics&)> take) { take_ = std::move(take); }

  // Nothing where `stops` (as in ExecuteOptions) gave the step up: all is as after the last one. NumericalError for a
  // loss or a gradient norm that is not finite, unless the optimizer skips such a step, of which rank 0 warns.
  // Collective over the world.
  std::optional<StepMetrics> run(std::int64_t step, Boosted& boosted, const std::function<bool()>& stops);

  // The last step's. Collective over pp.
  std::optional<StepPictures> pictures(const Boosted& boosted) const;
  // What is measured of the steps so far; the report's other facts are left out. Collective over pp.
  RunFacts facts(const Boosted& boosted) const;
  const std::vector<std::int64_t>& peaks() const { return peaks_; }  // bytes of tensors by rank; none before a step

 private:
  RewardMetrics rewards_of_step() const;
  // The norm of the gradients that the optimizer will step.
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
  PrepareBatch prepare_;  // empty: nothing is prepared
  std::function<bool(const StepMetrics&)> take_;
  std::int64_t counted_ = 0;         // steps that were done
  std::vector<std::int64_t> peaks_;  // by rank
};

}  // namespace gantry
