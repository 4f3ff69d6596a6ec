// Files of a checkpoint: written through a FileSystem and hashed on the way, read through a mapping.
#pragma once

#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <string_view>

#include "gantry/checkpoint/format/file_system.h"

struct XXH3_state_s;

namespace gantry {

// XXH3-128 of the bytes so far, as 32 hexadecimal digits.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(const Hasher&) = delete;
  Hasher& operator=(const Hasher&) = delete;
  void update(const void* data, std::size_t bytes);
  // The same, beside the caller, which may read the bytes meanwhile: the hasher and they are in use until what is
  // returned is waited for or destroyed. Few bytes are hashed at once.
  [[nodiscard]] std::future<void> update_beside(const void* data, std::size_t bytes);
  std::string digits() const;

 private:
  XXH3_state_s* state_;
};

std::string hash_of(std::string_view bytes);

// A file being written. Unless finished it is removed again. ResourceError, here and below, with the path and the
// system's words.
class OutputFile {
 public:
  OutputFile(FileSystem& files, const std::string& path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(const void* data, std::size_t bytes);
  void finish();  // synced and closed
  std::uint64_t size() const { return size_; }
  std::string hash() const { return hasher_.digits(); }

 private:
  void write_all(const char* left, std::size_t bytes);

  FileSystem& files_;
  std::string path_;
  int file_;
  std::uint64_t size_ = 0, on_its_way_ = 0;  // bytes; of these the first, which the disk was asked to take
  Hasher hasher_;
};

// A file that is whole or not there: written as PATH.partial, synced, then renamed by commit().
class DurableFile {
 public:
  explicit DurableFile(const std::string& path, FileSystem& files = system_files());
  ~DurableFile();
  void write(const void* data, std::size_t bytes) { file_->write(data, bytes); }
  void commit();

 private:
  FileSystem& files_;
  std::string path_;
  std::unique_ptr<OutputFile> file_;
};

void write_text_durably(const std::string& path, const std::string& text, FileSystem& files = system_files());

// The folder and those above it that are missing, each synced into its parent.
void make_folders(const std::string& path, FileSystem& files = system_files());
void rename_durably(const std::string& from, const std::string& to, FileSystem& files);  // the folder of `to` is synced
// A file, or a folder with all in it; what is not there is no error.
void remove_tree(const std::string& path, FileSystem& files);

// InputError if it can't be read, is empty, or has more than `most_bytes`.
std::string read_text(const std::string& path, std::uint64_t most_bytes = std::uint64_t{1} << 32);

}  // namespace gantry
