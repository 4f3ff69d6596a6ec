// Memory that a file on disk stands behind, so that the kernel can take its pages for other uses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace gantry {

// A file without a name in the folder for temporary files (TMPDIR, else /tmp), which goes with its owner.
class ScratchFile {
 public:
  // ResourceError where the folder has no room for it.
  explicit ScratchFile(std::int64_t bytes);
  ~ScratchFile();
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  std::span<std::byte> bytes() const { return bytes_; }
  // This process no longer holds the pages; they are read again when they are touched.
  void let_go() const;

 private:
  std::span<std::byte> bytes_;
};

}  // namespace gantry
