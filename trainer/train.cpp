#include "gantry/trainer/train.h"

#include <atomic>
#include <optional>

#include "gantry/booster/recipe.h"
#include "gantry/core/error.h"
#include "gantry/core/host/last_act.h"
#include "gantry/launch/launch.h"
#include "gantry/models/model_family.h"
#include "gantry/trainer/run_checkpoints.h"
#include "gantry/trainer/run_report.h"
#include "gantry/trainer/run_stops.h"
#include "gantry/trainer/stop_signals.h"

namespace gantry {
namespace {

// `config` is resolved, unless the program brings the model.
int run_job(Config config, const std::function<void(Trainer&)>& body, const RunOptions& options) {
  const int code = train_by_loop(std::move(config), [&](World& world) {
    Trainer trainer(world, world.config(), options);
    bool stopped = false;
    trainer.add({.on_start =
                     [&](std::int64_t) {
                       const std::string& folder = world.config().output;
                       if (!folder.empty())
                         set_last_act([folder](const std::string& error) { write_last_report(folder, error); });
                     },
                 .on_end = [&](const RunEnd& end) { stopped = end.how == RunEnd::How::kStopped; }});
    body(trainer);
    if (!trainer.has_run())
      throw UsageError({"gantry::train", "the function returned without a call of Trainer::run()",
                        "one run per Trainer", "call trainer.run() after use() and add()"});
    return stopped;
  });
  set_last_act({});
  return code;
}

}  // namespace

int train_by_loop(Config config, const std::function<bool(World&)>& loop) {
  config = resume_after_restart(std::move(config));
  std::optional<StopSignals> signals;
  if (handles_stop_signals(config)) signals.emplace();
  std::atomic<bool> stopped{false};
  const int code = launch(config, [&](World& world) {
    if (loop(world)) stopped = true;
  });
  return code == 0 && stopped ? StopRequested::kExitCode : code;
}

int train(const Config& config, const std::function<void(Trainer&)>& body, const RunOptions& options) {
  config.require_steps();
  const bool names_model = !config.model.policy.empty() || !config.model.path.empty();
  return run_job(names_model ? resolve_model(config) : config, body, options);
}

int train(const Config& config, const RunOptions& options) {
  config.require_training();
  const Config resolved = resolve_model(config);
  models::families().at(resolved.model.policy);
  return run_job(
      resolved, [](Trainer& trainer) { trainer.run(); }, options);
}

}  // namespace gantry
