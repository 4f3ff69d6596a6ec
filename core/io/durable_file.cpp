#include "gantry/core/io/durable_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "gantry/core/error.h"
#include "gantry/core/io/paths.h"

namespace gantry {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kPiece = std::size_t{1} << 20;
constexpr std::uint64_t kWriteBack = std::uint64_t{8} << 20;  // the disk starts to write these while others are copied

[[noreturn]] void fail(const std::string& path, const char* what) {
  const int error = errno;
  const bool full = error == ENOSPC || error == EDQUOT;
  throw ResourceError(
      {path, std::string(what) + ": " + std::strerror(error), "",
       full ? "free some space, or choose another directory" : "choose a directory that can be written"});
}

std::string parent_of(const std::string& path) { return fs::path(path).parent_path().string(); }

// The file that a new file at `path` replaces: the target of links, which may not exist yet. A device or pipe is
// refused, because the rename would remove it.
std::string replaced_file(const std::string& path) {
  std::error_code failure;
  const fs::file_status status = fs::status(path, failure);
  if (fs::exists(status) && !fs::is_regular_file(status) && !fs::is_directory(status))
    throw ResourceError({path, "the path is a device, a pipe or a socket, which the new file would replace",
                         "a regular file or a new name", "write to a file, and copy it from there"});
  constexpr int kMostLinks = 40;  // the limit of Linux
  fs::path file = path;
  for (int links = 0; links < kMostLinks && fs::is_symlink(fs::symlink_status(file, failure)); ++links)
    file = file.parent_path() / fs::read_symlink(file, failure);
  return file.string();
}

}  // namespace

OutputFile::OutputFile(FileSystem& files, const std::string& path) : files_(files), path_(path) {
  file_ = files_.create(path_);
  if (file_ < 0) fail(path_, "the file cannot be written");
}

OutputFile::~OutputFile() {
  if (file_ < 0) return;
  files_.close(file_);
  files_.unlink(path_);
}

void OutputFile::write(const void* data, std::size_t bytes) {
  const char* left = static_cast<const char*>(data);
  for (std::size_t piece; bytes > 0; bytes -= piece, left += piece) {
    piece = std::min(bytes, kPiece);
    write_all(left, piece);
    size_ += piece;
    if (size_ - on_its_way_ < kWriteBack) continue;
    files_.begin_sync(file_, on_its_way_, size_ - on_its_way_);
    on_its_way_ = size_;
  }
}

void OutputFile::write_all(const char* left, std::size_t bytes) {
  while (bytes > 0) {
    const ssize_t written = files_.write(file_, left, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written == 0) errno = ENOSPC;
    if (written <= 0) fail(path_, "the file cannot be written");
    left += written;
    bytes -= static_cast<std::size_t>(written);
  }
}

void OutputFile::finish(bool is_synced) {
  // A failed sync is not repeated: the kernel may have dropped the pages, so that the next sync succeeds wrongly.
  if (is_synced && files_.sync(file_) != 0) fail(path_, "the file cannot be synced");
  if (files_.close(std::exchange(file_, -1)) != 0) {
    const int error = errno;
    files_.unlink(path_);
    errno = error;
    fail(path_, "the file cannot be closed");
  }
}

DurableFile::DurableFile(const std::string& path, FileSystem& files, const DurableWay& way)
    : files_(files),
      path_(replaced_file(path)),
      partial_(path_ + way.suffix),
      is_synced_(way.is_synced),
      syncs_folder_(way.is_synced && way.syncs_folder),
      file_(files, partial_) {}

DurableFile::~DurableFile() {
  if (state_ == State::kFinished) files_.unlink(partial_);
}

void DurableFile::finish() {
  file_.finish(is_synced_);
  state_ = State::kFinished;
}

void DurableFile::commit() {
  if (state_ == State::kOpen) finish();
  if (files_.rename(partial_, path_) != 0) fail(path_, "the file cannot be renamed into place");
  state_ = State::kCommitted;
  if (syncs_folder_) sync_folder(parent_of(path_), files_);
}

void write_text_durably(const std::string& path, const std::string& text, FileSystem& files, const DurableWay& way) {
  DurableFile file(path, files, way);
  file.write(text.data(), text.size());
  file.commit();
}

void make_folders(const std::string& path, FileSystem& files) {
  if (is_folder(path)) return;
  const std::string parent = parent_of(path);
  if (!parent.empty() && parent != path) make_folders(parent, files);
  if (files.make_folder(path) != 0 && !(errno == EEXIST && is_folder(path)))
    fail(path, "the directory cannot be created");
  sync_folder(parent, files);
}

void sync_folder(const std::string& path, FileSystem& files) {
  const std::string folder = path.empty() ? "." : path;
  if (files.sync_folder(folder) != 0) fail(folder, "the file cannot be synced");
}

void rename_durably(const std::string& from, const std::string& to, FileSystem& files) {
  if (files.rename(from, to) != 0) fail(to, "the file cannot be renamed into place");
  sync_folder(parent_of(to), files);
}

void remove_tree(const std::string& path, FileSystem& files) {
  std::error_code failure;
  if (!fs::is_directory(fs::symlink_status(path, failure))) {
    if (files.unlink(path) != 0 && errno != ENOENT) fail(path, "the path cannot be removed");
    return;
  }
  std::vector<std::string> entries;  // a directory whose entries cannot be listed cannot be removed either
  for (fs::directory_iterator entry(path, failure), end; !failure && entry != end; entry.increment(failure))
    entries.push_back(entry->path());
  for (const auto& entry : entries) remove_tree(entry, files);
  if (files.remove_folder(path) != 0 && errno != ENOENT) fail(path, "the path cannot be removed");
}

}  // namespace gantry
