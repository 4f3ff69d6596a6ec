#include "gantry/booster/run_main.h"

#include <cstdio>
#include <exception>
#include <filesystem>

#include "gantry/booster/recipe.h"
#include "gantry/core/error.h"
#include "gantry/tensors/exceptions.h"

namespace gantry {

int run_main(int argc, char** argv, const std::function<int(Config config)>& body) {
  try {
    const std::string program = argc > 0 ? std::filesystem::path(argv[0]).filename().string() : "program";
    if (argc < 2)
      throw UsageError({program, "no configuration was passed", program + " CONFIG.yaml [KEY=VALUE...]", "pass one"});
    Config config = Config::load(argv[1], {argv + 2, argv + argc});
    load_libraries(config);
    return body(std::move(config));
  } catch (...) {
    const Failure failure = describe_exception(std::current_exception());
    std::fprintf(stderr, "error: %s\n", failure.line.c_str());
    return failure.exit_code;
  }
}

}  // namespace gantry
