// The training program. Usage: train CONFIG.yaml [KEY=VALUE...]
#include <gantry/booster/gantry.h>

int main(int argc, char** argv) {
  return gantry::run_main(argc, argv, [](const gantry::Config& config) { return gantry::train(config); });
}
