// The training program: train CONFIG.yaml [KEY=VALUE...]
#include <cstdio>

#include "model.h"

namespace {

// Where the run goes on: at the newest checkpoint, if there is one and the configuration asks for it.
std::int64_t resume(const gantry::Config& config, gantry::HybridParallelPlugin& plugin, gantry::Boosted& boosted) {
  if (config.checkpoint.resume == "none") return 0;
  const auto found = gantry::find_newest_checkpoint(config.checkpoint.path);
  if (!found.folder) return 0;
  auto info = gantry::read_checkpoint_info(*found.folder);
  gantry::require_same_model(info, config);
  gantry::load_checkpoint(*found.folder, plugin.state(boosted), plugin.mesh());
  if (info.progress.contains("data")) boosted.loader->seek(info.progress["data"]["samples"]);
  return info.step;
}

void save(const gantry::Config& config, gantry::HybridParallelPlugin& plugin, gantry::Boosted& boosted) {
  gantry::save_checkpoint({.directory = config.checkpoint.path,
                           .step = boosted.optimizer->steps(),
                           .config_text = config.to_yaml(),
                           .model_config = nlohmann::json::parse(config.model.config_json),
                           .policy = config.model.policy,
                           .progress = {{"data", {{"samples", boosted.loader->position()}}}}},
                          plugin.state(boosted), plugin.mesh());
}

// What every rank does.
void train(gantry::World& world, const gantry::Config& config) {
  auto* plugin = new gantry::HybridParallelPlugin(world, config);
  gantry::Booster booster{std::unique_ptr<gantry::Plugin>(plugin)};
  auto model = gantry::build_model(config);
  auto boosted = booster.boost(model, gantry::build_optimizer(config, *model), gantry::cross_entropy(),
                               gantry::build_loader(config), gantry::build_lr_schedule(config));
  const std::int64_t done = resume(config, *plugin, boosted);
  for (std::int64_t step = done + 1; step <= config.train.steps; ++step) {
    boosted.optimizer->set_lr(boosted.lr_schedule->at(step));
    const auto result = booster.execute_pipeline(boosted.loader->next(), boosted, {.broadcast_loss = true});
    boosted.optimizer->step();
    boosted.optimizer->zero_grad();
    if (world.is_main() && (step == done + 1 || step % config.train.log_every == 0))
      std::printf("step %ld: loss %.4f\n", static_cast<long>(step), *result.loss);
  }
  if (!config.checkpoint.path.empty() && done < config.train.steps) save(config, *plugin, boosted);
}

}  // namespace

int main(int argc, char** argv) {
  return gantry::run_main(argc, argv, [](gantry::Config config) {
    register_next_byte();
    config.require_training();
    config = gantry::resolve_model(std::move(config));
    return gantry::launch(config, [&](gantry::World& world) { train(world, config); });
  });
}
