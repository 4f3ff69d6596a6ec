// The files of a checkpoint, which are opened at the first read, and parts of global tensors from them.
#pragma once

#include <string>
#include <vector>

#include "gantry/checkpoint/format/open_files.h"
#include "gantry/checkpoint/safetensors.h"
#include "gantry/checkpoint/slices.h"

namespace gantry {

class CheckpointFiles {
 public:
  // The caller must check hashes first. `manifest` must outlive this object. Without a manifest, the files
  // are not compared with it, and their faults are InputErrors.
  explicit CheckpointFiles(std::string folder, const Manifest* manifest = nullptr)
      : folder_(std::move(folder)), manifest_(manifest) {}

  // Fills `target`, which holds the part `wanted` of the tensor. Throws CheckpointError if a file does not
  // contain what its manifest lists.
  void read_into(const ManifestTensor& tensor, const torch::Tensor& target, const Slice& wanted);
  torch::Tensor read(const ManifestTensor& tensor);  // reads the full tensor

 private:
  const SafetensorsFile& open(const std::string& name);  // valid until the next call

  std::string folder_;
  const Manifest* manifest_;
  OpenFiles<SafetensorsFile> files_;
};

}  // namespace gantry
