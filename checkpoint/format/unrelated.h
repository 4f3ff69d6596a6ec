// Checkpoints of other runs in the directory to which a run saves. Without LibTorch.
#pragma once

#include <optional>
#include <string>

namespace gantry {

// Returns the newest complete checkpoint in `directory`, if a restart of this run would wrongly resume from
// it. `resume` is the start of this run: none, auto, a step folder or its parent directory. For none, and for
// a checkpoint outside of `directory`, this is any checkpoint in `directory`. For a checkpoint in
// `directory`, only a newer one. For auto, always nothing, because such a run continues from whatever
// `directory` contains. Throws CheckpointError if `resume` is not a checkpoint.
std::optional<std::string> find_unrelated_checkpoint(const std::string& directory, const std::string& resume);

// Throws CheckpointError if there is such a checkpoint. For runs that may be restarted.
void refuse_foreign_checkpoint(const std::string& directory, const std::string& resume);

}  // namespace gantry
