// A file read once: hashed, and parts of it put where they are wanted, on the way.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gantry/checkpoint/format/manifest.h"

namespace gantry {

// The bytes [begin, begin + bytes) of a file go to `target`.
struct WantedBytes {
  std::uint64_t begin = 0, bytes = 0;
  unsigned char* target = nullptr;
};

// CheckpointError where the file's size or hash is not what the manifest states: what is in the targets is then not to
// to be used. `wanted` does not overlap. `taken` is called with the bytes of each piece.
void read_checked(const std::string& folder, const std::string& name, const ManifestFile& expected,
                  std::vector<WantedBytes> wanted, const std::function<void(std::uint64_t)>& taken = {});

}  // namespace gantry
