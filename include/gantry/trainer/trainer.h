// A complete training run according to the configuration. `gantry train` uses it, and your own program can too:
//
//   gantry::train(config, [](gantry::Trainer& trainer) {
//     trainer.add({.on_step = [](const gantry::StepMetrics& step) { ... }});
//     trainer.run();
//   });
//
// A run loads model.path, resumes from a checkpoint, trains train.steps steps, saves, evaluates, follows lr_schedule,
// writes metrics and a report, draws the pipeline, profiles, shows its progress and serves live status. Each part is a
// class or function that can be used alone in a custom loop: RunCheckpoints, RunStops, Evaluator, the MetricSink
// classes, StepTimeline, RunProfile, SampleText, open_output, write_run_report.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "gantry/booster/booster.h"
#include "gantry/planner/cluster.h"
#include "gantry/trainer/callbacks.h"
#include "gantry/trainer/status/status_access.h"

namespace gantry {

class SampleText;

// The parts of a run that the program provides. Parts that are not set are created from the configuration.
struct TrainerParts {
  // Created by every rank, in any precision; it is converted to the configured one. Weights are taken from rank 0,
  // unless the model is created under DeferredInit. Without model.policy, the policy that is registered for its class
  // is used.
  std::shared_ptr<torch::nn::Module> model = nullptr;
  std::shared_ptr<torch::optim::Optimizer> optimizer = nullptr;  // over the parameters of `model`
  std::optional<Criterion> criterion = std::nullopt;
  std::shared_ptr<DataLoader> loader = nullptr;             // returns global batches; boosting distributes it
  std::shared_ptr<DataLoader> evaluation_loader = nullptr;  // the same for held-out data
  int evaluate_every = 0;  // steps between evaluations with evaluation_loader; 0: only at the end
  std::optional<LrSchedule> lr_schedule = std::nullopt;
};

// Options of a run that the command line sets.
struct RunOptions {
  std::optional<StatusPlace> status = std::nullopt;    // address for live status on rank 0; empty: none
  std::shared_ptr<const SampleText> sample = nullptr;  // prompt to continue at the end; null: none
  // For the report, which compares the planner's predictions with measurements. It has at least as many ranks as the
  // job.
  std::optional<planner::Cluster> cluster = std::nullopt;
  std::string plan = {};  // description of how the layout was chosen, which is printed first
};

// Runs one training run on one rank. gantry::train() creates it.
class Trainer {
 public:
  // The trainer of one rank. Creates the process groups. Collective over the world.
  Trainer(World& world, const Config& config, const RunOptions& options = {});
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // Call use() and add() before run(), in the same way on all ranks.
  void use(TrainerParts parts);
  void add(TrainerCallbacks callbacks);
  // Adds a sink for metrics, which is called on rank 0. Sinks on other ranks are ignored.
  void add(std::unique_ptr<MetricSink> sink);

  // Trains; call it once. Throws UsageError for an optimizer without its model, and ConfigError for keys whose part the
  // program provides itself (such as data with a loader). Throws NumericalError for a loss or gradient norm that is not
  // finite (see train.non_finite), also of an evaluation, and the errors of its parts. Collective over the world.
  RunEnd run();

  // Ends the run after this step, as if it were the last one. For callbacks, on any rank.
  void end();

  World& world();
  Booster& booster();
  Boosted& boosted();            // available once run() was called
  const Config& config() const;  // resolved once run() was called
  bool has_run() const;          // true once run() was called

 private:
  class Run;
  std::unique_ptr<Run> run_;
};

}  // namespace gantry
