// A training program with a callback: quickstart CONFIG.yaml [KEY=VALUE...]
#include <cstdio>

#include "gantry/booster/gantry.h"

int main(int argc, char** argv) {
  return gantry::run_main(argc, argv, [](const gantry::Config& config) {
    return gantry::train(config, [](gantry::Trainer& trainer) {
      double best = 1e9;
      trainer.add({.on_step = [&](const gantry::StepMetrics& step) { best = std::min(best, step.loss); }});
      trainer.run();
      if (trainer.world().is_main()) std::printf("best loss: %.4f\n", best);
    });
  });
}
