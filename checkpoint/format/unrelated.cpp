#include "gantry/checkpoint/format/unrelated.h"

#include <filesystem>

#include "gantry/checkpoint/format/find.h"
#include "gantry/checkpoint/format/manifest.h"
#include "gantry/core/error.h"

namespace gantry {
namespace {

namespace fs = std::filesystem;

bool lies_in(const std::string& folder, const std::string& directory) {
  std::error_code failure;
  const fs::path parent = fs::canonical(folder, failure).parent_path();
  return !failure && parent == fs::canonical(directory, failure) && !failure;
}

// The step of a complete checkpoint: from the name of its folder or, if the folder was renamed, from the
// manifest.
std::int64_t step_in(const std::string& folder) {
  std::error_code failure;
  const auto named = step_of_folder_name(fs::canonical(folder, failure).filename().string());
  return named ? *named : read_manifest(folder).step;
}

}  // namespace

std::optional<std::string> find_unrelated_checkpoint(const std::string& directory, const std::string& resume) {
  if (directory.empty() || resume == "auto") return std::nullopt;
  const auto newest = find_newest_checkpoint(directory).folder;
  if (!newest || resume == "none") return newest;
  const std::string begin = require_checkpoint(resume);
  if (!lies_in(begin, directory) || step_in(*newest) > step_in(begin)) return newest;
  return std::nullopt;
}

void refuse_foreign_checkpoint(const std::string& directory, const std::string& resume) {
  const auto foreign = find_unrelated_checkpoint(directory, resume);
  if (!foreign) return;
  const std::string where = "checkpoint.path: " + *foreign,
                    what = "the checkpoint is from an earlier run, but a restart would resume from it";
  if (resume == "none")
    throw CheckpointError({where, what, "a directory without checkpoints, or checkpoint.resume: auto",
                           "move it away, or resume from it"});
  throw CheckpointError({where, what, "no newer checkpoint than " + resume + ", from which this run starts",
                         "move it away, set another checkpoint.path, or resume from it"});
}

}  // namespace gantry
