#include "gantry/checkpoint/format/checkpoint_folder.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <thread>
#include <unistd.h>

#include "gantry/checkpoint/format/files.h"
#include "gantry/checkpoint/format/find.h"
#include "gantry/checkpoint/format/tiling.h"
#include "gantry/core/error.h"
#include "gantry/core/io/file_lock.h"
#include "gantry/core/io/paths.h"

namespace gantry {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kPartial = ".partial";
constexpr const char* kReplaced = ".replaced";
constexpr const char* kRemoved = ".removed";
constexpr std::uint64_t kSpareBytes = std::uint64_t{1} << 20;  // for the manifest and the folder's own blocks

std::string part_path(const std::string& folder, int rank) { return folder + "/" + rank_file_name(rank) + ".part"; }

// The step of a name such as ".step-000012.partial"; none for other names.
std::optional<std::int64_t> step_of_hidden(const std::string& name, const std::string& suffix) {
  if (!name.starts_with(".") || !name.ends_with(suffix) || name.size() <= suffix.size() + 1) return std::nullopt;
  return step_of_folder_name(name.substr(1, name.size() - 1 - suffix.size()));
}

std::string hidden_folder(const std::string& directory, std::int64_t step, const char* suffix) {
  return directory + "/." + step_folder_name(step) + suffix;
}

std::string this_job() {
  char host[256] = "";
  ::gethostname(host, sizeof(host) - 1);
  return fmt::format("process {} on {}", ::getpid(), host);
}

std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> names;
  for (const auto& entry : entries_of(directory)) names.push_back(entry.filename());
  return names;
}

// Number of bytes in the folder. Files may appear and disappear during the call.
std::uint64_t bytes_in(const std::string& folder) {
  std::uint64_t bytes = 0;
  for (const auto& name : names_in(folder)) {
    std::error_code gone;
    if (const auto size = fs::file_size(folder + "/" + name, gone); !gone) bytes += size;
  }
  return bytes;
}

}  // namespace

std::string partial_folder(const std::string& directory, std::int64_t step) {
  return hidden_folder(directory, step, kPartial);
}

std::string rank_file_name(int rank) { return fmt::format("rank-{:05}.safetensors", rank); }

void write_part(const std::string& folder, const RankPart& part, FileSystem& files) {
  json tensors = json::array();
  for (const auto& tensor : part.tensors) tensors.push_back(to_json(tensor));
  const json all = {{"hash", part.facts.hash}, {"size", part.facts.size}, {"tensors", tensors}};
  // The .part file signals that this rank has written everything: rank 0 may then rename the folder at any
  // time.
  write_text_durably(folder + "/" + part.file + ".part", all.dump(), files, {.syncs_folder = false});
}

CheckpointFolder::CheckpointFolder(const std::string& directory, FileSystem& files, double lock_seconds)
    : directory_(directory), files_(files) {
  make_folders(directory_, files_);
  take_lock(lock_seconds);
  clear_leftovers();
}

CheckpointFolder::~CheckpointFolder() {
  if (lock_ >= 0) ::close(lock_);
}

void CheckpointFolder::take_lock(double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::duration<double>(seconds);
  const std::string path = directory_ + "/.lock";
  lock_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock_ < 0)
    throw ResourceError({path, std::string("the file cannot be written: ") + std::strerror(errno),
                         "a writable directory", "choose another checkpoint.path"});
  bool is_locked = try_lock(lock_, path);
  while (!is_locked && Clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    is_locked = try_lock(lock_, path);
  }
  if (!is_locked) {
    char owner[512] = "";
    const ssize_t bytes = ::pread(lock_, owner, sizeof(owner) - 1, 0);
    ::close(std::exchange(lock_, -1));
    const std::string who = bytes > 0 ? std::string(owner, static_cast<std::size_t>(bytes)) : "another job";
    throw CheckpointError({directory_, who + " writes its checkpoints to this directory", "one job per directory",
                           "end that job, or choose another checkpoint.path"});
  }
  // The text is for the error message of a second job. The lock itself is the kernel's and ends with the
  // process.
  const std::string owner = this_job();
  if (::ftruncate(lock_, 0) == 0) (void)!::pwrite(lock_, owner.data(), owner.size(), 0);
}

std::string CheckpointFolder::hidden(std::int64_t step, const char* suffix) const {
  return hidden_folder(directory_, step, suffix);
}

// The holder of the lock may remove everything that earlier holders left.
void CheckpointFolder::clear_leftovers() {
  for (const auto& name : names_in(directory_)) {
    const std::string path = directory_ + "/" + name;
    if (const auto step = step_of_hidden(name, kReplaced)) {
      const std::string place = directory_ + "/" + step_folder_name(*step);
      if (path_exists(place))
        remove_or_warn(path);
      else
        rename_durably(path, place, files_);
    } else if (step_of_hidden(name, kPartial) || step_of_hidden(name, kRemoved)) {
      remove_or_warn(path);
    } else if (name == "latest.partial") {
      files_.unlink(path);
    }
  }
}

void CheckpointFolder::begin(std::int64_t step, std::uint64_t bytes) {
  const std::string folder = partial(step);
  if (path_exists(folder)) remove_tree(folder, files_);
  const std::uint64_t left = files_.free_bytes(directory_), needed = bytes + kSpareBytes;
  if (left < needed)
    throw ResourceError({directory_, fmt::format("{} bytes are left, but this checkpoint needs {}", left, needed), "",
                         "free some space, choose another checkpoint.path, or lower checkpoint.keep"});
  make_folders(folder, files_);
}

bool CheckpointFolder::wait_for_parts(std::int64_t step, int ranks, const std::atomic<bool>& stop,
                                      std::chrono::seconds patience) const {
  using Clock = std::chrono::steady_clock;
  constexpr auto kLook = std::chrono::milliseconds(5), kLookAtSizes = std::chrono::milliseconds(1000);
  const std::string folder = partial(step);
  auto moved = Clock::now(), looked = moved;
  std::uint64_t written = 0;
  int next = 0;
  while (true) {
    const int before = next;
    while (next < ranks && path_exists(part_path(folder, next))) ++next;
    if (next == ranks) return true;
    if (stop) return false;
    const auto now = Clock::now();
    if (next > before) moved = now;
    if (now - looked >= std::min<Clock::duration>(kLookAtSizes, patience)) {
      looked = now;
      const std::uint64_t bytes = bytes_in(folder);
      if (bytes != std::exchange(written, bytes)) moved = now;
    }
    if (now - moved >= patience)
      throw PeerError({folder,
                       fmt::format("rank {} has not written its part, and no rank has written anything for {} s", next,
                                   patience.count()),
                       "the parts of all ranks", "look at that rank's own error and check its disk"});
    std::this_thread::sleep_for(kLook);
  }
}

void CheckpointFolder::take_parts(Manifest& manifest, int ranks) const {
  const std::string folder = partial(manifest.step);
  for (int rank = 0; rank < ranks; ++rank) {
    const json part = json::parse(read_text(part_path(folder, rank)));
    manifest.files[rank_file_name(rank)] = {part.at("hash"), part.at("size")};
    for (const auto& value : part.at("tensors")) {
      ManifestTensor tensor = tensor_from_json(value);
      auto [found, fresh] = manifest.tensors.try_emplace(tensor.key(), tensor);
      if (!fresh) found->second.slices.push_back(tensor.slices.front());
    }
  }
  for (const auto& [key, tensor] : manifest.tensors) check_tiling(tensor);
}

std::string CheckpointFolder::commit(Manifest header, int ranks, const KeptSteps& kept,
                                     const CompanionFiles& companions) {
  take_parts(header, ranks);
  const std::int64_t step = header.step;
  const std::string folder = partial(step);
  for (int rank = 0; rank < ranks; ++rank)
    if (files_.unlink(part_path(folder, rank)) != 0)
      throw ResourceError({part_path(folder, rank), std::string("the file cannot be removed: ") + std::strerror(errno),
                           "", "check the permissions of the directory"});
  if (!companions.contents.empty()) {
    make_folders(folder + "/" + kCompanionFolder, files_);
    header.companions = write_companion_files(folder + "/" + kCompanionFolder, companions, files_);
  }
  const std::string text = manifest_text(header);
  OutputFile manifest(files_, folder + "/" + kManifestName);
  manifest.write(text.data(), text.size());
  manifest.finish();
  sync_folder(folder, files_);
  put_in_place(step);
  name_latest(step);
  try {
    if (kept.newest > 0) hide_older(step, kept);
    remove_hidden();
  } catch (const Error& error) {
    warn_of_removal(directory_, error);
  }
  return directory_ + "/" + step_folder_name(step);
}

void CheckpointFolder::put_in_place(std::int64_t step) {
  const std::string place = directory_ + "/" + step_folder_name(step), replaced = hidden(step, kReplaced);
  const bool again = path_exists(place);
  if (again) {
    if (path_exists(replaced)) remove_tree(replaced, files_);
    rename_durably(place, replaced, files_);
  }
  rename_durably(partial(step), place, files_);
  if (again) remove_or_warn(replaced);
}

// Writes the name of the newest complete checkpoint. The saved step may be older (reshard into the same
// directory).
void CheckpointFolder::name_latest(std::int64_t saved) {
  const std::string newest =
      fs::path(find_newest_checkpoint(directory_).folder.value_or(step_folder_name(saved))).filename();
  write_text_durably(directory_ + "/latest", newest + "\n", files_);
}

// Counts complete checkpoints only, so that a damaged one does not push out a good one.
void CheckpointFolder::hide_older(std::int64_t newest, const KeptSteps& kept) {
  std::vector<std::int64_t> steps;
  for (const auto& name : names_in(directory_))
    if (const auto step = step_of_folder_name(name);
        step && *step < newest && completeness_fault(directory_ + "/" + name).empty())
      steps.push_back(*step);
  std::sort(steps.begin(), steps.end(), std::greater<>());
  for (std::size_t i = static_cast<std::size_t>(kept.newest) - 1; i < steps.size(); ++i) {
    if (steps[i] == kept.stays) continue;
    const std::string older = directory_ + "/" + step_folder_name(steps[i]);
    try {
      rename_durably(older, hidden(steps[i], kRemoved), files_);
    } catch (const Error& error) {
      warn_of_removal(older, error);
    }
  }
}

void CheckpointFolder::remove_hidden() {
  for (const auto& name : names_in(directory_))  // includes leftovers of earlier saves
    if (step_of_hidden(name, kRemoved)) remove_or_warn(directory_ + "/" + name);
}

void CheckpointFolder::remove_or_warn(const std::string& folder) {
  try {
    remove_tree(folder, files_);
  } catch (const Error& error) {
    warn_of_removal(folder, error);
  }
}

void CheckpointFolder::warn_of_removal(const std::string& folder, const Error& error) {
  if (warned_.insert(folder).second)
    warnings_.push_back(
        fmt::format("{}; the next save tries to remove it again, and until then it occupies disk space", error.what()));
}

}  // namespace gantry
