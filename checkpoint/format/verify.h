// Whether a checkpoint is what was written, to the last bit.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gantry/checkpoint/format/manifest.h"
#include "gantry/checkpoint/format/stored_file.h"

namespace gantry {

// Called with the bytes that are done and all there are.
using ByteProgress = std::function<void(std::uint64_t done, std::uint64_t all)>;

struct VerifyReport {
  std::size_t files = 0;
  std::uint64_t bytes = 0;
  std::vector<std::string> faults;  // a line each; none: sound
};

// Reads everything in `folder`: the manifest's and every file's hash, size and header.
VerifyReport verify_checkpoint(const std::string& folder, const ByteProgress& progress = {});

// CheckpointError where the file's size or hash is not what the manifest states.
void check_file_hash(const std::string& folder, const std::string& name, const ManifestFile& expected,
                     const std::function<void(std::uint64_t)>& hashed = {});

// The same for all files of the checkpoint, companion files among them.
void check_all_hashes(const std::string& folder, const Manifest& manifest,
                      const std::function<void(std::uint64_t)>& hashed = {});

// CheckpointError where the file does not hold exactly the slices that the manifest says it has.
void check_file_slices(const Manifest& manifest, const std::string& name, const StoredFile& file);

}  // namespace gantry
