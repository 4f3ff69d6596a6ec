#include "gantry/checkpoint/checkpoint.h"

#include <fmt/format.h>

#include "gantry/checkpoint/hugging_face.h"
#include "gantry/cli/engine/commands.h"
#include "gantry/core/error.h"

namespace gantry::cli {

int run_checkpoint_export(const CheckpointExportArguments& arguments) {
  const std::string folder = require_checkpoint(arguments.checkpoint);
  export_checkpoint(folder, arguments.output);
  fmt::print("exported {} (step {}) to {}\n", folder, read_checkpoint_info(folder).step, arguments.output);
  return 0;
}

}  // namespace gantry::cli
