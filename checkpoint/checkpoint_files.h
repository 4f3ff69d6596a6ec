// The files of a checkpoint, opened when first read, and parts of global tensors out of them.
#pragma once

#include <string>
#include <vector>

#include "gantry/checkpoint/format/open_files.h"
#include "gantry/checkpoint/safetensors.h"
#include "gantry/checkpoint/slices.h"

namespace gantry {

class CheckpointFiles {
 public:
  // Hashes are the caller's to check first. `manifest` must outlive this; without one the files are not compared with
  // it, and their faults are InputErrors.
  explicit CheckpointFiles(std::string folder, const Manifest* manifest = nullptr)
      : folder_(std::move(folder)), manifest_(manifest) {}

  // Fills `target`, which holds `wanted` of the tensor. CheckpointError for a file that does not hold what the manifest
  // says.
  void read_into(const ManifestTensor& tensor, const torch::Tensor& target, const Slice& wanted);
  torch::Tensor read(const ManifestTensor& tensor);  // whole

 private:
  const SafetensorsFile& open(const std::string& name);  // holds until the next call

  std::string folder_;
  const Manifest* manifest_;
  OpenFiles<SafetensorsFile> files_;
};

}  // namespace gantry
