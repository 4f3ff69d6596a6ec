// The system calls that write files durably, behind an interface, so that tests can inject failures or kill the process
// at any of them. Each function has the effect of the system call of the same name and sets errno.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <sys/types.h>

namespace gantry {

class FileSystem {
 public:
  virtual ~FileSystem() = default;
  // Creates or truncates the file and opens it for writing; returns -1 on failure, like the others.
  virtual int create(const std::string& path);
  virtual ssize_t write(int file, const void* data, std::size_t bytes);
  virtual int sync(int file);
  // Asks the kernel to start writing these bytes to disk. Errors are reported by sync().
  virtual void begin_sync(int file, std::uint64_t begin, std::uint64_t bytes);
  virtual int close(int file);
  virtual int sync_folder(const std::string& path);  // 0 if the file system does not support syncing a directory
  virtual int rename(const std::string& from, const std::string& to);
  virtual int unlink(const std::string& path);
  virtual int make_folder(const std::string& path);
  virtual int remove_folder(const std::string& path);  // the directory must be empty
  // Returns the number of bytes that this user can still write at `path`; the largest number if it is unknown.
  virtual std::uint64_t free_bytes(const std::string& path);
};

// The system calls themselves.
FileSystem& system_files();

}  // namespace gantry
