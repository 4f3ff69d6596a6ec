// The evaluations of a run: their schedule, their content, and early stopping.
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
  // All references must outlive this object. `config` is read when an evaluation is due. Losses are recorded
  // in `record`. `before_print` is called before anything is printed.
  RunEvaluations(const World& world, const Config& config, Booster& booster, const RunStops& stops,
                 HeldOutRecord& record, std::function<void()> before_print);

  // Distributes the data of `held_out` (null: no evaluations) and evaluation.choices, and reads
  // evaluation.prompts. `predictions`, `prepare` and `rewards`: see Evaluator. Call it after boost() and before the
  // functions below. Throws the errors of ChoiceScorer::of and ContinuedPrompts::of. Collective over the
  // world.
  void prepare(std::shared_ptr<DataLoader> held_out, Predictions predictions, PrepareBatch prepare,
               std::shared_ptr<RewardMeter> rewards, const Boosted& boosted);

  // Returns whether an evaluation is due after this step. `last`: the run ends with this step.
  bool due_at(std::int64_t step, bool last) const;
  // `loss_alone`: skips choices and prompts, whose results are already published. Returns nothing, and
  // records nothing, if a stop was requested during the evaluation. Collective over the world.
  std::optional<EvaluationMetrics> run(std::int64_t step, bool loss_alone, Boosted& boosted);
  // Returns true if train.patience ends the run. Rank 0 prints this once.
  bool is_out_of_patience();

 private:
  // run() with the parameters as they are.
  std::optional<EvaluationMetrics> measure(std::int64_t step, bool loss_alone, Boosted& boosted);

  const World& world_;
  const Config& config_;
  Booster& booster_;
  const RunStops& stops_;
  HeldOutRecord& record_;
  std::function<void()> before_print_;
  std::shared_ptr<DataLoader> held_out_;  // null without evaluation
  Predictions predictions_ = Predictions::kNone;
  PrepareBatch prepare_;
  std::shared_ptr<RewardMeter> rewards_;       // null without preferences
  std::unique_ptr<ChoiceScorer> choices_;      // null without evaluation.choices
  std::unique_ptr<ContinuedPrompts> prompts_;  // null without evaluation.prompts
  bool said_impatience_ = false;
};

}  // namespace gantry
