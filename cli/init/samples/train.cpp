// The training program. Usage: train CONFIG.yaml [KEY=VALUE...]
#include "samples.h"

int main(int argc, char** argv) {
  write_samples();
  return gantry::run_main(argc, argv, [](const gantry::Config& config) { return gantry::train(config); });
}
