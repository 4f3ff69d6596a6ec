// A custom training loop that uses the keys of the YAML by the same classes as Trainer:
// own_loop CONFIG.yaml [KEY=VALUE...]
#include <cstdio>

#include "gantry/booster/gantry.h"

namespace {

// The mean loss over held-out data, by a criterion other than that of the training: without label smoothing.
double evaluate(gantry::Booster& booster, gantry::Boosted& boosted, const gantry::DataLoader& held_out) {
  const gantry::Criterion criterion = gantry::causal_cross_entropy();
  double sum = 0;
  std::int64_t tokens = 0;
  for (std::int64_t i = 0; i < held_out.steps(); ++i) {
    const auto result = booster.execute_pipeline(
        held_out.batch(i), boosted, {.broadcast_loss = true, .forward_only = true, .criterion = criterion});
    sum += *result.loss * static_cast<double>(result.tokens);
    tokens += result.tokens;
  }
  return sum / static_cast<double>(tokens);
}

// Returns true if a signal stopped the loop.
bool train(gantry::World& world) {
  const gantry::Config& config = world.config();
  gantry::Booster booster(std::make_unique<gantry::HybridParallelPlugin>(world, config));
  auto model = gantry::build_model(config);
  auto boosted = booster.boost(model, gantry::build_optimizer(config, *model), gantry::build_criterion(config),
                               gantry::build_loader(config), gantry::build_lr_schedule(config));
  gantry::load_weights(config, boosted, booster.mesh());
  const auto held_out = gantry::build_evaluation_loader(config);  // null without evaluation.path
  if (held_out) booster.distribute(*held_out, boosted);
  gantry::RunCheckpoints checkpoints(world, config, booster.plugin());
  const gantry::RunStops stops(config, booster.mesh());
  bool stopped = false;
  for (auto step = checkpoints.resume(boosted) + 1; step <= config.train.steps && !stopped; ++step) {
    const auto result = booster.execute_pipeline(boosted.loader->next(), boosted, {.broadcast_loss = true});
    boosted.optimizer->step();  // at the learning rate of lr_schedule
    boosted.optimizer->zero_grad();
    if (world.is_main() && step % config.train.log_every == 0)
      std::printf("step %d: loss %.4f\n", static_cast<int>(step), *result.loss);
    stopped = stops.asked_to_stop();
    if (stopped || step == config.train.steps || checkpoints.saves_at(step)) checkpoints.save(step, boosted);
  }
  checkpoints.finish();
  if (held_out && !stopped) {
    const double loss = evaluate(booster, boosted, *held_out);
    if (world.is_main()) std::printf("held-out loss %.4f\n", loss);
  }
  return stopped;
}

}  // namespace

int main(int argc, char** argv) {
  return gantry::run_main(argc, argv, [](const gantry::Config& config) {
    return gantry::train_by_loop(gantry::resolve_model(config), train);  // 75 after a signal
  });
}
