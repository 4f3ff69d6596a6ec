// A program's main: the configuration that its arguments name, and errors as a line and an exit code.
#pragma once

#include <functional>

#include "gantry/core/config.h"

namespace gantry {

// For a program that is called as NAME CONFIG.yaml [KEY=VALUE...], as `--set` has them:
//
//   int main(int argc, char** argv) {
//     return gantry::run_main(argc, argv, [](gantry::Config config) { return gantry::launch(config, train); });
//   }
//
// Loads the configuration and the libraries that it names, and gives what the body returns. What any of these throw, or
// a call without a configuration, is printed to stderr as "error: <line>", and its exit code is returned: that of
// core/error.h, 1 for an exception of another kind.
int run_main(int argc, char** argv, const std::function<int(Config config)>& body);

}  // namespace gantry
