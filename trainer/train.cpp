#include "gantry/trainer/train.h"

#include <atomic>
#include <future>

#include "gantry/booster/recipe.h"
#include "gantry/launch/launch.h"
#include "gantry/models/model_family.h"
#include "gantry/trainer/run_checkpoints.h"
#include "gantry/trainer/run_report.h"
#include "gantry/trainer/stop_signals.h"

namespace gantry {
namespace {

constexpr int kStoppedOnRequest = 75;

// `config` is resolved, unless the program brings the model.
int run_job(Config config, const std::function<void(Trainer&)>& body, const RunOptions& options) {
  config = resume_after_restart(std::move(config));
  std::optional<StopSignals> signals;
  if (!config.checkpoint.path.empty()) signals.emplace();
  std::atomic<bool> stopped{false};
  std::future<void> last_report;  // waits for it
  const int code = launch(config, [&](World& world) {
    Trainer trainer(world, config, options);
    trainer.add({.on_end = [&](const RunEnd& end) {
      if (end.how == RunEnd::How::kStopped) stopped = true;
    }});
    try {
      body(trainer);
    } catch (...) {
      if (world.is_main() && trainer.has_begun()) last_report = write_last_report(config.output);
      throw;
    }
  });
  return code == 0 && stopped ? kStoppedOnRequest : code;
}

}  // namespace

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
