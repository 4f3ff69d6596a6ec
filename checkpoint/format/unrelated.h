// Checkpoints of other runs in the directory to which a run saves. Without LibTorch.
#pragma once

#include <optional>
#include <string>

namespace gantry {

// Returns the newest complete checkpoint in `directory` if a restart would resume from it by mistake.
// `resume`, the start of this run, is none, auto, a step folder or its parent directory.
// - none, or a checkpoint in another directory: any checkpoint in `directory` is returned.
// - A checkpoint in `directory`: a newer one is returned.
// - auto: always nothing, because the run uses whatever is in `directory`.
// Throws CheckpointError if `resume` is not a checkpoint.
std::optional<std::string> find_unrelated_checkpoint(const std::string& directory, const std::string& resume);

// Throws CheckpointError if there is such a checkpoint. For runs that may be restarted.
void refuse_foreign_checkpoint(const std::string& directory, const std::string& resume);

}  // namespace gantry
