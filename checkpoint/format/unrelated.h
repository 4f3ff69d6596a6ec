// Checkpoints that lie where a run saves, though it did not make them. Without LibTorch.
#pragma once

#include <optional>
#include <string>

namespace gantry {

// The newest complete checkpoint in `directory`, if a run that begins from `resume` (none | auto | a step folder or its
// parent) would take it for its own after a restart: any one where it begins anew or from elsewhere, a newer one than
// the one it begins from. Nothing for auto, which takes what there is. CheckpointError for a `resume` that is none.
std::optional<std::string> find_unrelated_checkpoint(const std::string& directory, const std::string& resume);

// CheckpointError where there is such a one: for runs that may be started again.
void refuse_foreign_checkpoint(const std::string& directory, const std::string& resume);

}  // namespace gantry
