// A training program of one's own: quickstart CONFIG.yaml [KEY=VALUE...]
#include <cstdio>

#include "gantry/booster/gantry.h"

int main(int argc, char** argv) {
  return gantry::run_main(argc, argv, [](gantry::Config config) {
    config = gantry::resolve_model(std::move(config));
    return gantry::launch(config, [&](gantry::World& world) {
      gantry::Booster booster(std::make_unique<gantry::HybridParallelPlugin>(world, config));
      auto model = gantry::build_model(config);
      auto boosted = booster.boost(model, gantry::build_optimizer(config, *model), gantry::cross_entropy(),
                                   gantry::build_loader(config));
      for (auto& batch : *boosted.loader) {
        auto result = booster.execute_pipeline(batch, boosted, {.broadcast_loss = true});
        boosted.optimizer->step();
        boosted.optimizer->zero_grad();
        if (world.is_main())
          std::printf("step %d: loss %.4f\n", static_cast<int>(boosted.optimizer->steps()), *result.loss);
      }
    });
  });
}
