// Ends a run when its held-out loss no longer falls: stop_early CONFIG.yaml [KEY=VALUE...]
#include <cstdio>
#include <limits>

#include "gantry/booster/gantry.h"

int main(int argc, char** argv) {
  return gantry::run_main(argc, argv, [](const gantry::Config& config) {
    return gantry::train(config, [](gantry::Trainer& trainer) {
      constexpr int kPatience = 2;  // evaluations
      double best = std::numeric_limits<double>::infinity();
      int since_best = 0;
      trainer.add({.on_evaluation = [&](const gantry::EvaluationMetrics& evaluation) {
        since_best = evaluation.loss < best ? 0 : since_best + 1;
        best = std::min(best, evaluation.loss);
        if (since_best == kPatience) trainer.end();
      }});
      const gantry::RunEnd end = trainer.run();
      if (trainer.world().is_main())
        std::printf("ended after step %d, best held-out loss %.4f\n", static_cast<int>(end.last_step), best);
    });
  });
}
