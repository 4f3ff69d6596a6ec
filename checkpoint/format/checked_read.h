// Reads a file once: hashes it and copies parts of it to their targets at the same time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gantry/checkpoint/format/manifest.h"

namespace gantry {

// The bytes [begin, begin + bytes) of a file, and their destination.
struct WantedBytes {
  std::uint64_t begin = 0, bytes = 0;
  unsigned char* target = nullptr;
};

// Throws CheckpointError if the size or hash of the file differs from the manifest. The contents of the
// targets must then not be used. The ranges of `wanted` must not overlap. `taken` is called with the number
// of bytes of each piece.
void read_checked(const std::string& folder, const std::string& name, const ManifestFile& expected,
                  std::vector<WantedBytes> wanted, const std::function<void(std::uint64_t)>& taken = {});

}  // namespace gantry
