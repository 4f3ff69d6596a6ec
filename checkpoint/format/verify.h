// Verifies that a checkpoint is bitwise identical to the written one.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gantry/checkpoint/format/manifest.h"
#include "gantry/checkpoint/format/stored_file.h"

namespace gantry {

// Called with the number of bytes that are done, and with the total.
using ByteProgress = std::function<void(std::uint64_t done, std::uint64_t all)>;

struct VerifyReport {
  std::size_t files = 0;
  std::uint64_t bytes = 0;
  std::vector<std::string> faults;  // one line each; empty: the checkpoint is sound
};

// Reads everything in `folder`, and checks the manifest and the hash, size and header of every file.
VerifyReport verify_checkpoint(const std::string& folder, const ByteProgress& progress = {});

// Throws CheckpointError if the file's size or hash differs from the manifest.
void check_file_hash(const std::string& folder, const std::string& name, const ManifestFile& expected,
                     const std::function<void(std::uint64_t)>& hashed = {});

// The same for all files of the checkpoint, including companion files.
void check_all_hashes(const std::string& folder, const Manifest& manifest,
                      const std::function<void(std::uint64_t)>& hashed = {});

// Throws CheckpointError unless the file contains exactly the slices that the manifest lists.
void check_file_slices(const Manifest& manifest, const std::string& name, const StoredFile& file);

}  // namespace gantry
