#include "gantry/checkpoint/files.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <memory>
#include <unistd.h>
#include <vector>
#include <xxhash.h>

#include "gantry/core/error.h"

namespace gantry {

DurableFile::DurableFile(const std::string& path) : path_(path), partial_(path + ".partial") {
  file_ = ::open(partial_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file_ < 0) fail();
}

DurableFile::~DurableFile() {
  if (file_ < 0) return;
  ::close(file_);
  ::unlink(partial_.c_str());
}

void DurableFile::fail() const {
  throw ResourceError({path_, std::string("can't be written: ") + std::strerror(errno), "",
                       "free some space, or choose another folder"});
}

void DurableFile::write(const void* data, std::size_t bytes) {
  const char* left = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = ::write(file_, left, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) fail();
    left += written;
    bytes -= static_cast<std::size_t>(written);
  }
}

void DurableFile::commit() {
  if (::fsync(file_) != 0) fail();
  const int closed = ::close(file_);
  file_ = -1;
  if (closed != 0 || ::rename(partial_.c_str(), path_.c_str()) != 0) fail();
}

void write_text_durably(const std::string& path, const std::string& text) {
  DurableFile file(path);
  file.write(text.data(), text.size());
  file.commit();
}

void sync_folder(const std::string& folder) {
  const int file = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool synced = file >= 0 && ::fsync(file) == 0;
  if (file >= 0) ::close(file);
  if (!synced) throw ResourceError({folder, std::string("can't be synced: ") + std::strerror(errno), "", ""});
}

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file) throw CheckpointError({path, "can't be read", "a checkpoint's file", ""});
  return text;
}

std::string hash_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw CheckpointError({path, "can't be read", "a checkpoint's file", ""});
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(), XXH3_freeState);
  XXH3_128bits_reset(state.get());
  std::vector<char> buffer(1 << 20);
  while (file.read(buffer.data(), static_cast<std::streamsize>(buffer.size())), file.gcount() > 0)
    XXH3_128bits_update(state.get(), buffer.data(), static_cast<std::size_t>(file.gcount()));
  const XXH128_hash_t hash = XXH3_128bits_digest(state.get());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace gantry
