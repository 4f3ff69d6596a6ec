// The training program. Usage: train CONFIG.yaml [KEY=VALUE...]
#include "model.h"

int main(int argc, char** argv) {
  return gantry::run_main(argc, argv, [](const gantry::Config& config) {
    register_next_byte();
    return gantry::train(config);
  });
}
