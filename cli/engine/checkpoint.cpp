#include "gantry/checkpoint/checkpoint.h"

#include <fmt/format.h>

#include "gantry/checkpoint/hugging_face.h"
#include "gantry/cli/engine/commands.h"
#include "gantry/core/error.h"
#include "gantry/models/model_family.h"

namespace gantry::cli {

int run_checkpoint_export(const CheckpointExportArguments& arguments) {
  const auto folder = find_checkpoint(arguments.checkpoint);
  if (!folder)
    throw CheckpointError({arguments.checkpoint, "has no complete checkpoint", "a step folder or its parent", ""});
  const CheckpointInfo info = read_checkpoint_info(*folder);
  const auto& family = models::families().at(info.policy);
  const TensorDict tensors = read_checkpoint_tensors(*folder, "model");
  save_hugging_face(arguments.output, family.hugging_face_config(info.model_config),
                    to_hugging_face(family.tensor_names(info.model_config), tensors));
  fmt::print("exported {} (step {}) to {}\n", *folder, info.step, arguments.output);
  return 0;
}

}  // namespace gantry::cli
