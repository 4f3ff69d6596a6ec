// A training program of one's own: quickstart CONFIG.yaml
#include <cstdio>

#include "gantry/booster/gantry.h"

int main(int argc, char** argv) {
  if (argc != 2) return std::fprintf(stderr, "usage: quickstart CONFIG.yaml\n"), 2;
  auto config = gantry::resolve_model(gantry::Config::load(argv[1]));
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
}
