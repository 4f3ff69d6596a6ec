// The bytes of a file as read-only memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace gantry {

// Maps a file. Pages are read when they are accessed. Do not truncate the file while it is mapped: an access beyond its
// new end kills the process (SIGBUS).
class MappedFile {
 public:
  // Throws InputError if `path` is not a readable regular file.
  explicit MappedFile(const std::filesystem::path& path);
  // Maps an open file, which the caller may close. `name`: for messages.
  MappedFile(int file, const std::string& name);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }
  const unsigned char* data() const { return reinterpret_cast<const unsigned char*>(bytes_.data()); }
  std::uint64_t size() const { return bytes_.size(); }
  std::string_view text() const { return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()}; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  std::span<const std::byte> bytes_;
};

}  // namespace gantry
