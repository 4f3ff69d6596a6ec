#include "gantry/checkpoint/format/find.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fmt/format.h>

#include "gantry/checkpoint/format/companion_files.h"
#include "gantry/checkpoint/format/damage.h"
#include "gantry/checkpoint/format/manifest.h"
#include "gantry/core/error.h"
#include "gantry/core/io/paths.h"

namespace gantry {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step-";

// Returns the step folders in `parent`, newest first. Empty if `parent` does not exist.
std::vector<StepFolder> step_folders(const std::string& parent) {
  std::vector<StepFolder> folders;
  if (!is_folder(parent)) return folders;
  for (const auto& entry : entries_of(parent))
    if (const auto step = step_of_folder_name(entry.filename()); step && is_folder(entry))
      folders.push_back({entry, *step, ""});
  std::sort(folders.begin(), folders.end(), [](const auto& a, const auto& b) { return a.step > b.step; });
  return folders;
}

// True if the path is a checkpoint and not the parent directory of checkpoints.
bool is_itself(const std::string& path) {
  return path_exists(path + "/" + kManifestName) || step_of_folder_name(fs::path(path).filename()).has_value();
}

// Returns the fault of a step folder, or "". Writes the manifest's text to `text`.
std::string fault_of_step(const std::string& folder, std::string& text) {
  const std::string path = folder + "/" + kManifestName;
  if (!path_exists(path)) return folder + " has no " + kManifestName;
  try {
    text = read_manifest_text(folder);
    const Manifest manifest = parse_manifest(text, path);
    const auto named = step_of_folder_name(fs::path(folder).filename());
    if (named && *named != manifest.step) return fmt::format("{} contains step {}", folder, manifest.step);
    std::vector<std::pair<std::string, std::uint64_t>> files;
    for (const auto& [name, file] : manifest.files) files.emplace_back(name, file.size);
    for (const auto& [name, file] : manifest.companions)
      files.emplace_back(std::string(kCompanionFolder) + "/" + name, file.size);
    for (const auto& [name, expected] : files) {
      const std::string file_path = folder + "/" + name;
      std::error_code failure;
      const auto size = fs::file_size(file_path, failure);
      if (failure) return file_path + " is missing";
      if (size == expected) continue;
      const std::string like = file_likeness(file_path);
      return fmt::format("{} has {} bytes instead of {}{}{}", file_path, size, expected, like.empty() ? "" : "; ",
                         like);
    }
  } catch (const CheckpointError& error) {
    return error.what();
  }
  return "";
}

std::string describe(const std::vector<StepFolder>& folders) {
  std::string text;
  for (const auto& folder : folders) text += (text.empty() ? "" : ", ") + folder.fault;
  return text;
}

}  // namespace

std::string step_folder_name(std::int64_t step) { return fmt::format("{}{:06}", kPrefix, step); }

std::optional<std::int64_t> step_of_folder_name(const std::string& name) {
  if (!name.starts_with(kPrefix) || name.size() == kPrefix.size()) return std::nullopt;
  std::int64_t step = 0;
  const char* end = name.data() + name.size();
  const auto [stopped, error] = std::from_chars(name.data() + kPrefix.size(), end, step);
  if (error != std::errc() || stopped != end || step < 0) return std::nullopt;
  return step;
}

std::string completeness_fault(const std::string& folder) {
  std::string text;
  return fault_of_step(folder, text);
}

FoundCheckpoint find_newest_checkpoint(const std::string& parent) {
  FoundCheckpoint found;
  for (auto& folder : step_folders(parent)) {
    folder.fault = fault_of_step(folder.path, found.manifest);
    if (folder.fault.empty()) {
      found.folder = folder.path;
      return found;
    }
    found.passed_over.push_back(std::move(folder));
  }
  found.manifest.clear();
  return found;
}

bool holds_checkpoints(const std::string& directory) {
  return is_itself(directory) || !step_folders(directory).empty();
}

CompleteCheckpoint require_complete_checkpoint(const std::string& path,
                                               const std::function<void(const std::string&)>& passed_over) {
  CompleteCheckpoint complete{path, ""};
  if (is_itself(path)) {
    if (const std::string fault = fault_of_step(path, complete.manifest); !fault.empty())
      throw CheckpointError({path, "the checkpoint is not complete: " + fault, "", "use another checkpoint"});
    return complete;
  }
  if (!path_exists(path))
    throw CheckpointError({path, "there is no complete checkpoint, because this directory does not exist",
                           "a step directory or its parent", "check the path"});
  FoundCheckpoint found = find_newest_checkpoint(path);
  if (found.folder && passed_over)
    for (const auto& folder : found.passed_over) passed_over(folder.fault);
  if (found.folder) return {*found.folder, std::move(found.manifest)};
  throw CheckpointError(
      {path, "there is no complete checkpoint" + (found.passed_over.empty() ? "" : ": " + describe(found.passed_over)),
       "a step directory or its parent", ""});
}

std::string require_checkpoint(const std::string& path, const std::function<void(const std::string&)>& passed_over) {
  return require_complete_checkpoint(path, passed_over).folder;
}

}  // namespace gantry
