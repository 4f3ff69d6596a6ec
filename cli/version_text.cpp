#include "gantry/cli/version_text.h"

#include <fmt/format.h>

#include "gantry/core/version.h"

namespace gantry::cli {

std::string version_text() {
  return fmt::format("gantry {}\ncompiler: {}\nbuild type: {}\nLibTorch: {}\nbackends: {}", GANTRY_VERSION,
                     GANTRY_COMPILER, GANTRY_BUILD_TYPE, GANTRY_TORCH_VERSION, GANTRY_BACKENDS);
}

}  // namespace gantry::cli
