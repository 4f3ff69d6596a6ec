// A file's bytes as read-only memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

namespace gantry {

// Pages are read when they are touched. The file must not be cut while it is mapped: touching what is gone ends the
// process (SIGBUS).
class MappedFile {
 public:
  // InputError for what is no readable file.
  explicit MappedFile(const std::filesystem::path& path);
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
