// Prints the held-out loss of a model, in the configured layout: evaluate CONFIG.yaml [KEY=VALUE...]
//
// The model is a Hugging Face directory (model.path), or the newest checkpoint of checkpoint.path; the data is
// evaluation.path. evaluate_and_export.sh runs this program on a checkpoint and on the exported directory.
#include <cmath>
#include <cstdio>

#include "gantry/booster/gantry.h"

namespace {

void evaluate(gantry::World& world, const gantry::Config& config) {
  auto* plugin = new gantry::HybridParallelPlugin(world, config);
  gantry::Booster booster{std::unique_ptr<gantry::Plugin>(plugin)};
  auto boosted = booster.boost(gantry::build_model(config), nullptr, gantry::build_criterion(config));
  gantry::load_weights(config, boosted, plugin->mesh());
  if (config.model.path.empty())
    gantry::load_checkpoint(gantry::require_checkpoint(config.checkpoint.path), plugin->state(boosted), plugin->mesh());
  auto held_out = gantry::build_evaluation_loader(config);
  plugin->distribute(*held_out, boosted);
  double sum = 0;
  std::int64_t tokens = 0;
  for (std::int64_t i = 0; i < held_out->steps(); ++i) {
    const auto result =
        booster.execute_pipeline(held_out->batch(i), boosted, {.broadcast_loss = true, .forward_only = true});
    sum += *result.loss * static_cast<double>(result.tokens);
    tokens += result.tokens;
  }
  const double loss = sum / static_cast<double>(tokens);
  if (world.is_main())
    std::printf("loss %.3f, perplexity %.1f over %ld tokens\n", loss, std::exp(loss), static_cast<long>(tokens));
}

}  // namespace

int main(int argc, char** argv) {
  return gantry::run_main(argc, argv, [](gantry::Config config) {
    config = gantry::resolve_model(std::move(config));
    return gantry::launch(config, [&](gantry::World& world) { evaluate(world, config); });
  });
}
