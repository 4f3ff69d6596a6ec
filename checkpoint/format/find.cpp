#include "gantry/checkpoint/format/find.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fmt/format.h>

#include "gantry/checkpoint/format/damage.h"
#include "gantry/checkpoint/format/manifest.h"
#include "gantry/core/error.h"

namespace gantry {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step-";

// Newest first.
std::vector<StepFolder> step_folders(const std::string& parent) {
  std::vector<StepFolder> folders;
  std::error_code failure;
  for (const auto& entry : fs::directory_iterator(parent, failure))
    if (const auto step = step_of_folder_name(entry.path().filename()); step && entry.is_directory(failure))
      folders.push_back({entry.path(), *step, ""});
  std::sort(folders.begin(), folders.end(), [](const auto& a, const auto& b) { return a.step > b.step; });
  return folders;
}

// Not a parent of checkpoints.
bool is_itself(const std::string& path) {
  std::error_code failure;
  return fs::exists(path + "/" + kManifestName, failure) || step_of_folder_name(fs::path(path).filename()).has_value();
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
  std::error_code failure;
  if (!fs::exists(folder + "/" + kManifestName, failure)) return folder + " has no " + kManifestName;
  try {
    const Manifest manifest = read_manifest(folder);
    const auto named = step_of_folder_name(fs::path(folder).filename());
    if (named && *named != manifest.step) return fmt::format("{} holds step {}", folder, manifest.step);
    for (const auto& [name, file] : manifest.files) {
      const std::string path = folder + "/" + name;
      const auto size = fs::file_size(path, failure);
      if (failure) return path + " is missing";
      if (size == file.size) continue;
      const std::string like = file_likeness(path);
      return fmt::format("{} has {} bytes instead of {}{}{}", path, size, file.size, like.empty() ? "" : "; ", like);
    }
  } catch (const CheckpointError& error) {
    return error.what();
  }
  return "";
}

FoundCheckpoint find_newest_checkpoint(const std::string& parent) {
  FoundCheckpoint found;
  for (auto& folder : step_folders(parent)) {
    folder.fault = completeness_fault(folder.path);
    if (folder.fault.empty()) {
      found.folder = folder.path;
      break;
    }
    found.passed_over.push_back(std::move(folder));
  }
  return found;
}

bool holds_checkpoints(const std::string& directory) {
  return is_itself(directory) || !step_folders(directory).empty();
}

std::string require_checkpoint(const std::string& path, const std::function<void(const std::string&)>& passed_over) {
  std::error_code failure;
  if (is_itself(path)) {
    if (const std::string fault = completeness_fault(path); !fault.empty())
      throw CheckpointError({path, "is no complete checkpoint: " + fault, "", "use another"});
    return path;
  }
  if (!fs::exists(path, failure))
    throw CheckpointError(
        {path, "does not exist, so there is no complete checkpoint", "a step folder or its parent", "check the path"});
  const FoundCheckpoint found = find_newest_checkpoint(path);
  if (found.folder && passed_over)
    for (const auto& folder : found.passed_over) passed_over(folder.fault);
  if (found.folder) return *found.folder;
  throw CheckpointError(
      {path, "has no complete checkpoint" + (found.passed_over.empty() ? "" : ": " + describe(found.passed_over)),
       "a step folder or its parent", ""});
}

}  // namespace gantry
