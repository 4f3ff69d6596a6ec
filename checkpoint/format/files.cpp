#include "gantry/checkpoint/format/files.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>
#include <xxhash.h>

#include "gantry/core/error.h"
#include "gantry/core/mapped_file.h"
#include "gantry/core/paths.h"

namespace gantry {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kPiece = std::size_t{1} << 20;
constexpr std::size_t kWorthAThread = std::size_t{1} << 20;   // hashing fewer bytes is as fast as starting a thread
constexpr std::uint64_t kWriteBack = std::uint64_t{8} << 20;  // the disk begins with these while others are copied

[[noreturn]] void fail(const std::string& path, const char* what) {
  const int error = errno;
  const bool full = error == ENOSPC || error == EDQUOT;
  throw ResourceError({path, std::string(what) + ": " + std::strerror(error), "",
                       full ? "free some space, or choose another folder" : "choose a folder that can be written"});
}

std::string parent_of(const std::string& path) {
  const std::string parent = fs::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

}  // namespace

Hasher::Hasher() : state_(XXH3_createState()) {
  if (!state_) throw std::bad_alloc();
  XXH3_128bits_reset(state_);
}

Hasher::~Hasher() { XXH3_freeState(state_); }

void Hasher::update(const void* data, std::size_t bytes) { XXH3_128bits_update(state_, data, bytes); }

std::future<void> Hasher::update_beside(const void* data, std::size_t bytes) {
  try {
    if (bytes >= kWorthAThread) return std::async(std::launch::async, [this, data, bytes] { update(data, bytes); });
  } catch (const std::system_error&) {  // no thread can be had
  }
  update(data, bytes);
  return {};
}

std::string Hasher::digits() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_);
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::string hash_of(std::string_view bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

OutputFile::OutputFile(FileSystem& files, const std::string& path) : files_(files), path_(path) {
  file_ = files_.create(path_);
  if (file_ < 0) fail(path_, "can't be written");
}

OutputFile::~OutputFile() {
  if (file_ < 0) return;
  files_.close(file_);
  files_.unlink(path_);
}

void OutputFile::write(const void* data, std::size_t bytes) {
  const std::future<void> hashing = hasher_.update_beside(data, bytes);
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
    if (written <= 0) fail(path_, "can't be written");
    left += written;
    bytes -= static_cast<std::size_t>(written);
  }
}

void OutputFile::finish() {
  // A sync that failed is not tried again: the kernel may have dropped the pages, and then the next one succeeds.
  if (files_.sync(file_) != 0) fail(path_, "can't be synced");
  if (files_.close(std::exchange(file_, -1)) != 0) {
    const int error = errno;
    files_.unlink(path_);
    errno = error;
    fail(path_, "can't be closed");
  }
}

DurableFile::DurableFile(const std::string& path, FileSystem& files)
    : files_(files), path_(path), file_(std::make_unique<OutputFile>(files, path + ".partial")) {}

DurableFile::~DurableFile() = default;

void DurableFile::commit() {
  file_->finish();
  rename_durably(path_ + ".partial", path_, files_);
}

void write_text_durably(const std::string& path, const std::string& text, FileSystem& files) {
  DurableFile file(path, files);
  file.write(text.data(), text.size());
  file.commit();
}

void make_folders(const std::string& path, FileSystem& files) {
  if (is_folder(path)) return;
  const std::string parent = parent_of(path);
  if (parent != path) make_folders(parent, files);
  if (files.make_folder(path) != 0 && !(errno == EEXIST && is_folder(path))) fail(path, "can't be made");
  if (files.sync_folder(parent) != 0) fail(parent, "can't be synced");
}

void rename_durably(const std::string& from, const std::string& to, FileSystem& files) {
  if (files.rename(from, to) != 0) fail(to, "can't be renamed into place");
  if (files.sync_folder(parent_of(to)) != 0) fail(parent_of(to), "can't be synced");
}

void remove_tree(const std::string& path, FileSystem& files) {
  std::error_code failure;
  if (!fs::is_directory(fs::symlink_status(path, failure))) {
    if (files.unlink(path) != 0 && errno != ENOENT) fail(path, "can't be removed");
    return;
  }
  std::vector<std::string> entries;  // those that can't be listed make the folder one that can't be removed
  for (fs::directory_iterator entry(path, failure), end; !failure && entry != end; entry.increment(failure))
    entries.push_back(entry->path());
  for (const auto& entry : entries) remove_tree(entry, files);
  if (files.remove_folder(path) != 0 && errno != ENOENT) fail(path, "can't be removed");
}

std::string read_text(const std::string& path, std::uint64_t most_bytes) {
  const MappedFile file(path);
  if (file.size() == 0) throw InputError({path, "is empty", "", "fetch or write it again"});
  if (file.size() > most_bytes)
    throw InputError({path, fmt::format("has {} bytes", file.size()), fmt::format("at most {}", most_bytes), ""});
  return std::string(file.text());
}

}  // namespace gantry
