// A custom training loop in one function, with gradient accumulation: short_loop CONFIG.yaml [KEY=VALUE...]
#include <cstdio>

#include "gantry/booster/gantry.h"

int main(int argc, char** argv) {
  return gantry::run_main(argc, argv, [](const auto& config) {
    return gantry::launch(config, [&](auto& world) {
      gantry::Booster booster(std::make_unique<gantry::HybridParallelPlugin>(world, config));
      auto model = gantry::build_model(config);
      auto boosted = booster.boost(model, gantry::build_optimizer(config, *model), gantry::build_criterion(config),
                                   gantry::build_loader(config));
      for (int step = 1; step <= 20; ++step) {
        {
          const auto guard = booster.no_sync();  // the first batch of the step: accumulate
          booster.execute_pipeline(boosted.loader->next(), boosted);
        }
        const auto result = booster.execute_pipeline(boosted.loader->next(), boosted, {.broadcast_loss = true});
        boosted.optimizer->step();  // clips the gradients to optimizer.clip_grad_norm
        boosted.optimizer->zero_grad();
        if (world.is_main()) std::printf("step %d: loss %.4f\n", step, *result.loss);
      }
    });
  });
}
