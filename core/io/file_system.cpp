#include "gantry/core/file_system.h"

#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <limits>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

namespace gantry {

int FileSystem::create(const std::string& path) {
  return ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
}

ssize_t FileSystem::write(int file, const void* data, std::size_t bytes) { return ::write(file, data, bytes); }

int FileSystem::sync(int file) { return ::fsync(file); }

void FileSystem::begin_sync(int file, std::uint64_t begin, std::uint64_t bytes) {
  ::sync_file_range(file, static_cast<off64_t>(begin), static_cast<off64_t>(bytes), SYNC_FILE_RANGE_WRITE);
}

int FileSystem::close(int file) { return ::close(file); }

int FileSystem::sync_folder(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) return -1;
  const int synced = ::fsync(file), error = errno;
  ::close(file);
  errno = error;
  return error == EINVAL ? 0 : synced;
}

int FileSystem::rename(const std::string& from, const std::string& to) { return ::rename(from.c_str(), to.c_str()); }

int FileSystem::unlink(const std::string& path) { return ::unlink(path.c_str()); }

int FileSystem::make_folder(const std::string& path) { return ::mkdir(path.c_str(), 0755); }

int FileSystem::remove_folder(const std::string& path) { return ::rmdir(path.c_str()); }

std::uint64_t FileSystem::free_bytes(const std::string& path) {
  struct statvfs status {};
  if (::statvfs(path.c_str(), &status) != 0) return std::numeric_limits<std::uint64_t>::max();
  return static_cast<std::uint64_t>(status.f_bavail) * status.f_frsize;
}

FileSystem& system_files() {
  static FileSystem files;
  return files;
}

}  // namespace gantry
