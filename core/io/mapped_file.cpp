#include "gantry/core/mapped_file.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "gantry/core/error.h"

namespace gantry {
namespace {

[[noreturn]] void refuse(const std::filesystem::path& path, const std::string& what) {
  throw InputError({path.string(), what, "a file that can be read", "check the path"});
}

std::span<const std::byte> map(const std::filesystem::path& path, int file) {
  struct stat status {};
  if (::fstat(file, &status) != 0) refuse(path, std::strerror(errno));
  if (!S_ISREG(status.st_mode)) refuse(path, "the path is not a regular file");
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size == 0) return {};
  void* memory = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) refuse(path, std::string("the file cannot be mapped: ") + std::strerror(errno));
  return {static_cast<const std::byte*>(memory), size};
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) : path_(path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // opening a pipe must not block
  if (file < 0) refuse(path, std::strerror(errno));
  try {
    bytes_ = map(path, file);
  } catch (...) {
    ::close(file);
    throw;
  }
  ::close(file);
}

MappedFile::MappedFile(int file, const std::string& name) : path_(name), bytes_(map(name, file)) {}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), bytes_(std::exchange(other.bytes_, {})) {}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace gantry
