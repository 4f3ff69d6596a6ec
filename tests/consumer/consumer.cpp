#include <cstdio>

#include "gantry/booster/gantry.h"

int main() {
  gantry::Config config;
  config.parallel.tensor = 2;
  return gantry::launch(config, [](gantry::World& world) {
    gantry::ProcessGroupMesh mesh(world);
    const double sum = gantry::all_reduce_number(mesh["tp"], world.rank() + 1);
    if (world.is_main()) std::printf("sum %g\n", sum);
    if (sum != 3) throw gantry::InternalError("consumer: wrong sum");
  });
}
