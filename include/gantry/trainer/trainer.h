// A whole training run as the configuration says: what `gantry train` does, in a program of one's own.
//
//   gantry::train(config, [](gantry::Trainer& trainer) {
//     trainer.add({.on_step = [](const gantry::StepMetrics& step) { ... }});
//     trainer.run();
//   });
//
// A run loads model.path, goes on from a checkpoint, trains train.steps steps, saves, evaluates, follows lr_schedule,
// writes metrics and a report, draws the pipeline, profiles, shows its progress and serves live status. Each part is a
// class that works alone in a loop of one's own: RunCheckpoints, RunStops, Evaluator, MetricSink and those that
// implement it, StepTimeline, RunProfile, SampleText, open_output, write_run_report.
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

// What of a run is the program's own; what is left out comes from the configuration.
struct TrainerParts {
  // Built by every rank, in any precision: it gets the configuration's. Its values are rank 0's, unless it is built
  // under DeferredInit. Without model.policy its class says which registered policy it is split by.
  std::shared_ptr<torch::nn::Module> model = nullptr;
  std::shared_ptr<torch::optim::Optimizer> optimizer = nullptr;  // over that model's parameters
  std::optional<Criterion> criterion = std::nullopt;
  std::shared_ptr<DataLoader> loader = nullptr;             // gives global batches; boosting distributes it
  std::shared_ptr<DataLoader> evaluation_loader = nullptr;  // likewise, of held-out data
  int evaluate_every = 0;                                   // steps between its evaluations; 0: at the end only
  std::optional<LrSchedule> lr_schedule = std::nullopt;
};

// What the command line of a run says beside its configuration.
struct RunOptions {
  std::optional<StatusPlace> status = std::nullopt;    // where rank 0 serves live status
  std::shared_ptr<const SampleText> sample = nullptr;  // what is shown at the end
  // The report sets what the planner predicts of it beside what was measured. It has the job's ranks, or more.
  std::optional<planner::Cluster> cluster = std::nullopt;
  std::string plan = {};  // lines on how the layout was chosen, which are shown first
};

class Trainer {
 public:
  // Of one rank. Makes the process groups. Collective over the world.
  Trainer(World& world, const Config& config, const RunOptions& options = {});
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // Before run(), on all ranks alike.
  void use(TrainerParts parts);
  void add(TrainerCallbacks callbacks);
  // Takes the metrics too, on rank 0. Other ranks may pass one as well, which is not called.
  void add(std::unique_ptr<MetricSink> sink);

  // Trains. Once. UsageError for an optimizer without its model; ConfigError for keys whose part the program has
  // brought itself (data with a loader of its own); NumericalError for a loss or a gradient norm that is not finite
  // (train.non_finite); and what its parts throw. Collective over the world.
  RunEnd run();

  // From a callback, on any rank: the run ends after this step as if it were its last one.
  void end();

  World& world();
  Booster& booster();
  Boosted& boosted();            // from run() on
  const Config& config() const;  // resolved from run() on
  // Whether the output folder has this run's files, so that a report can be made of them, also after a failure.
  bool has_begun() const;

 private:
  class Run;
  std::unique_ptr<Run> run_;
};

}  // namespace gantry
