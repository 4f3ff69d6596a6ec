#include "gantry/checkpoint/format/staged_files.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "gantry/checkpoint/format/model_files.h"
#include "gantry/core/error.h"
#include "gantry/core/io/file_lock.h"
#include "gantry/core/io/paths.h"

namespace gantry {
namespace {

constexpr std::array<const char*, 3> kReadFirst = {"config.json", "adapter_config.json", kModelIndex};

std::string placing_folder(const std::string& directory) { return directory + "/.placing"; }

// The lock is the kernel's and ends with the process.
int lock_of(const std::string& folder, const std::string& directory) {
  const int lock = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (lock < 0 || try_lock(lock, folder)) return lock;
  ::close(lock);
  throw UsageError({directory, "another job is writing a model to this directory", "one job per directory",
                    "wait until it ends, or choose another directory"});
}

}  // namespace

StagedFiles::StagedFiles(const std::string& directory, FileSystem& files) : directory_(directory), files_(files) {
  if (path_exists(directory_) && !is_folder(directory_))
    throw UsageError({directory_, "the path is a file", "a directory to write to", "choose another path"});
  make_folders(directory_, files_);
  if (const std::string placing = placing_folder(directory_); path_exists(placing)) {
    lock_ = lock_of(placing, directory_);
    finish();
    if (lock_ >= 0) ::close(std::exchange(lock_, -1));
  }
  if (files_.make_folder(folder(directory_)) != 0 && errno != EEXIST)
    throw ResourceError({folder(directory_), std::string("the directory cannot be created: ") + std::strerror(errno),
                         "a writable directory", "choose another path"});
  lock_ = lock_of(folder(directory_), directory_);
  for (const auto& left : entries_of(folder(directory_))) remove_tree(left.string(), files_);
}

StagedFiles::~StagedFiles() {
  try {
    if (path_exists(folder(directory_))) remove_tree(folder(directory_), files_);
  } catch (const std::exception&) {  // the files are hidden, and the next save removes them
  }
  if (lock_ >= 0) ::close(lock_);
}

std::string StagedFiles::folder(const std::string& directory) { return directory + "/.parts"; }

void StagedFiles::place() {
  sync_folder(folder(directory_), files_);
  rename_durably(folder(directory_), placing_folder(directory_), files_);
  finish();
}

void StagedFiles::finish() {
  const std::string placing = placing_folder(directory_);
  std::vector<std::string> names;
  for (const auto& entry : entries_of(placing)) names.push_back(entry.filename().string());
  const auto has = [&](const char* name) { return std::find(names.begin(), names.end(), name) != names.end(); };
  for (const char* name : kReadFirst)
    if (has(name)) remove_tree(directory_ + "/" + name, files_);
  sync_folder(directory_, files_);
  for (const auto& name : names)
    if (std::find(kReadFirst.begin(), kReadFirst.end(), name) == kReadFirst.end()) {
      const std::string place = directory_ + "/" + name;
      // A directory cannot replace a directory with files in a rename.
      if (is_folder(place)) remove_tree(place, files_);
      rename_durably(placing + "/" + name, place, files_);
    }
  for (auto name = kReadFirst.rbegin(); name != kReadFirst.rend(); ++name)
    if (has(*name)) rename_durably(placing + "/" + *name, directory_ + "/" + *name, files_);
  remove_tree(placing, files_);
}

std::string unfinished_placing(const std::string& directory) {
  return path_exists(placing_folder(directory))
             ? "; a save to it ended before its files were in place, and the next save to it completes it"
             : "";
}

}  // namespace gantry
