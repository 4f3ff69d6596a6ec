// Files of a checkpoint: they are hashed while they are written, and read through a mapping.
#pragma once

#include <cstddef>
#include <cstdint>
#include <future>
#include <string>
#include <string_view>

#include "gantry/core/io/durable_file.h"

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
  // The same on another thread. The hasher and the bytes are in use until the returned future is waited for
  // or destroyed; the caller may read the bytes meanwhile. A few bytes are hashed at once.
  [[nodiscard]] std::future<void> update_peer(const void* data, std::size_t bytes);
  std::string digits() const;

 private:
  XXH3_state_s* state_;
};

std::string hash_of(std::string_view bytes);

// A file that is hashed while it is written.
class HashedFile {
 public:
  HashedFile(FileSystem& files, const std::string& path) : file_(files, path) {}

  void write(const void* data, std::size_t bytes);
  void finish() { file_.finish(); }
  std::uint64_t size() const { return file_.size(); }
  std::string hash() const { return hasher_.digits(); }

 private:
  OutputFile file_;
  Hasher hasher_;
};

// Throws InputError if the file cannot be read, is empty, or has more than `most_bytes`.
std::string read_text(const std::string& path, std::uint64_t most_bytes = std::uint64_t{1} << 32);

}  // namespace gantry
