#include "gantry/core/io/scratch_file.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <string>
#include <sys/mman.h>
#include <system_error>
#include <unistd.h>

#include "gantry/core/error.h"

namespace gantry {
namespace {

[[noreturn]] void refuse(const std::string& folder, std::int64_t bytes, int error) {
  throw ResourceError({folder,
                       "the directory has no space for a temporary file of " + std::to_string(bytes) +
                           " bytes: " + std::strerror(error),
                       "a directory on a disk with enough space for offloaded data",
                       "set TMPDIR to such a directory, or train.offload to none"});
}

}  // namespace

ScratchFile::ScratchFile(std::int64_t bytes) {
  std::error_code none;  // TMPDIR is not a directory, so the file cannot be created
  std::string folder = std::filesystem::temp_directory_path(none).string();
  if (const char* named = std::getenv("TMPDIR"); folder.empty() && named) folder = named;
  std::string name = folder + "/gantry_offload_XXXXXX";
  const int file = ::mkostemp(name.data(), O_CLOEXEC);
  if (file < 0) refuse(folder, bytes, errno);
  ::unlink(name.c_str());
  // The space is allocated now, because a full disk would kill the process when it writes to a page.
  int error = ::posix_fallocate(file, 0, bytes);
  void* memory = MAP_FAILED;
  if (error == 0) {
    memory = ::mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) error = errno;
  }
  ::close(file);
  if (error != 0) refuse(folder, bytes, error);
  bytes_ = {static_cast<std::byte*>(memory), static_cast<std::size_t>(bytes)};
}

ScratchFile::~ScratchFile() { ::munmap(bytes_.data(), bytes_.size()); }

void ScratchFile::let_go() const { ::madvise(bytes_.data(), bytes_.size(), MADV_DONTNEED); }

}  // namespace gantry
