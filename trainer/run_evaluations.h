// The evaluations of a run: when they are due, what belongs to one, and whether the held-out loss still falls.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "gantry/booster/booster.h"
#include "gantry/comm/world.h"
#include "gantry/trainer/choice_scorer.h"
#include "gantry/trainer/continued_prompts.h"
#include "gantry/trainer/evaluator.h"
#include "gantry/trainer/held_out_record.h"
#include "gantry/trainer/metrics.h"
#include "gantry/trainer/run_stops.h"

namespace gantry {

class RunEvaluations {
 public:
  // None is owned. `config` is asked when an evaluation is due; losses are noted in `record`; `before_print` is called
  // before anything is printed.
  RunEvaluations(const World& world, const Config& config, Booster& booster, const RunStops& stops,
                 HeldOutRecord& record, std::function<void()> before_print);

  // Distributes the data: those of `held_out` (null: nothing is evaluated), evaluation.choices and evaluation.prompts.
  // `predictions` and `prepare` are as Evaluator's. After boost, before all that follows. Errors are those of
  // ChoiceScorer and ContinuedPrompts. Collective over the world.
  void prepare(std::shared_ptr<DataLoader> held_out, Predictions predictions, PrepareBatch prepare,
               const Boosted& boosted);

  // `last`: the run ends with this step.
  bool due_at(std::int64_t step, bool last) const;
  // `loss_alone`: without choices and prompts, which were published already. Nothing, and nothing is noted, where the
  // run was asked to stop meanwhile. Collective over the world.
  std::optional<EvaluationMetrics> run(std::int64_t step, bool loss_alone, Boosted& boosted);
  // By train.patience. Rank 0 says so, once.
  bool is_out_of_patience();

 private:
  const World& world_;
  const Config& config_;
  Booster& booster_;
  const RunStops& stops_;
  HeldOutRecord& record_;
  std::function<void()> before_print_;
  std::shared_ptr<DataLoader> held_out_;  // null without evaluation
  Predictions predictions_ = Predictions::kNone;
  PrepareBatch prepare_;
  std::unique_ptr<ChoiceScorer> choices_;      // null without evaluation.choices
  std::unique_ptr<ContinuedPrompts> prompts_;  // likewise
  bool said_impatience_ = false;
};

}  // namespace gantry
