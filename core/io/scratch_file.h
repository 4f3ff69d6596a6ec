// Memory that is backed by a file, so that the kernel can reuse its pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace gantry {

// An unnamed file in the directory for temporary files (TMPDIR, else /tmp). It is deleted with its owner.
class ScratchFile {
 public:
  // Throws ResourceError if the directory has not enough space.
  explicit ScratchFile(std::int64_t bytes);
  ~ScratchFile();
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  std::span<std::byte> bytes() const { return bytes_; }
  // Releases the pages of this process; they are read again on the next access.
  void let_go() const;

 private:
  std::span<std::byte> bytes_;
};

}  // namespace gantry
