// The main function of a program: loads the configuration from the arguments, and reports errors as a line and an exit
// code.
#pragma once

#include <functional>

#include "gantry/core/config.h"

namespace gantry {

// For a program that is called as NAME CONFIG.yaml [KEY=VALUE...], with overrides as in --set:
//
//   int main(int argc, char** argv) {
//     return gantry::run_main(argc, argv, [](gantry::Config config) { return gantry::launch(config, train); });
//   }
//
// Loads the configuration and the libraries that it lists, and returns the result of `body`. If the configuration is
// missing, or any of these throws, it prints "error: <line>" to stderr and returns the exit code of the error
// (core/error.h), or 1 for other exceptions.
int run_main(int argc, char** argv, const std::function<int(Config config)>& body);

}  // namespace gantry
