// Finds checkpoints in a directory, and checks whether they are complete.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace gantry {

// Converts between a step and the name of its directory: "step-000012".
std::string step_folder_name(std::int64_t step);
std::optional<std::int64_t> step_of_folder_name(const std::string& name);

// Returns why a checkpoint is incomplete, or "" if it is complete: if its manifest is valid (it contains its own hash),
// and every file that it lists exists with its size. The contents of files are checked by verify and by loading. This
// function and those below throw InputError for a directory that cannot be read, because it could contain checkpoints.
std::string completeness_fault(const std::string& folder);

// A step directory; `fault` is "" if its checkpoint is complete.
struct StepFolder {
  std::string path;
  std::int64_t step = 0;
  std::string fault;
};

// The result of find_newest_checkpoint().
struct FoundCheckpoint {
  std::optional<std::string> folder;    // the newest complete checkpoint
  std::string manifest;                 // text of its manifest.json, so that it is read only once
  std::vector<StepFolder> passed_over;  // newer ones that are incomplete, newest first, with the reason
};

// Checks the step directories in `parent`, newest first. A missing `parent` has none.
FoundCheckpoint find_newest_checkpoint(const std::string& parent);

// True for the directory of a checkpoint, complete or not, and for a directory that contains one.
bool holds_checkpoints(const std::string& directory);

// A complete checkpoint: its directory, and the text of its manifest.json.
struct CompleteCheckpoint {
  std::string folder, manifest;
};

// Returns `path` if it is the directory of a checkpoint, otherwise the newest complete checkpoint in it. `passed_over`
// is called with the fault of each newer one. Throws CheckpointError if there is none, or if `path` itself is
// incomplete, with the reason.
CompleteCheckpoint require_complete_checkpoint(const std::string& path,
                                               const std::function<void(const std::string& fault)>& passed_over = {});
// Returns only its directory.
std::string require_checkpoint(const std::string& path,
                               const std::function<void(const std::string& fault)>& passed_over = {});

}  // namespace gantry
