// Which folders are checkpoints, and which of them are complete.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace gantry {

// "step-000012".
std::string step_folder_name(std::int64_t step);
std::optional<std::int64_t> step_of_folder_name(const std::string& name);

// The one rule of what a complete checkpoint is: its manifest is whole (it states its own hash), and every file that it
// names is there with its size. Gives what is wrong, or "". The files' contents are checked by verify and by loading.
// InputError, here and below, for a folder that may not be read: it may have checkpoints in it.
std::string completeness_fault(const std::string& folder);

struct StepFolder {
  std::string path;
  std::int64_t step = 0;
  std::string fault;
};

struct FoundCheckpoint {
  std::optional<std::string> folder;    // the newest complete one
  std::string manifest;                 // the text of its manifest.json, read once for whoever goes on with it
  std::vector<StepFolder> passed_over;  // newer ones, newest first, each with its fault
};

// Looks at the step folders in `parent`, newest first. A parent that is not there has none.
FoundCheckpoint find_newest_checkpoint(const std::string& parent);

// A checkpoint's folder, complete or not, or one that has such in it.
bool holds_checkpoints(const std::string& directory);

// A complete checkpoint, with the text of its manifest.json.
struct CompleteCheckpoint {
  std::string folder, manifest;
};

// `path` itself where it is a checkpoint's folder, else the newest complete one in it; `passed_over` is called with
// what is wrong with each newer one. CheckpointError where there is none, or where `path` itself is incomplete, saying
// why.
CompleteCheckpoint require_complete_checkpoint(const std::string& path,
                                               const std::function<void(const std::string& fault)>& passed_over = {});
// Its folder alone.
std::string require_checkpoint(const std::string& path,
                               const std::function<void(const std::string& fault)>& passed_over = {});

}  // namespace gantry
