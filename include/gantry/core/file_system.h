// The system calls by which files are written durably, behind one interface, so that tests can let any of them fail or
// kill the process there. Each does what the call of its name does and sets errno.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <sys/types.h>

namespace gantry {

class FileSystem {
 public:
  virtual ~FileSystem() = default;
  virtual int create(const std::string& path);  // opened for writing, emptied; -1 on failure, as below
  virtual ssize_t write(int file, const void* data, std::size_t bytes);
  virtual int sync(int file);
  // Asks the disk to begin with these bytes. A hint: what fails is found by sync().
  virtual void begin_sync(int file, std::uint64_t begin, std::uint64_t bytes);
  virtual int close(int file);
  virtual int sync_folder(const std::string& path);  // 0 where the file system has no sync of folders
  virtual int rename(const std::string& from, const std::string& to);
  virtual int unlink(const std::string& path);
  virtual int make_folder(const std::string& path);
  virtual int remove_folder(const std::string& path);  // an empty one
  // What this user may still write there; the largest number where it can't be told.
  virtual std::uint64_t free_bytes(const std::string& path);
};

FileSystem& system_files();

}  // namespace gantry
