#include "gantry/checkpoint/checkpoint_files.h"

#include "gantry/checkpoint/format/verify.h"
#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {

const SafetensorsFile& CheckpointFiles::open(const std::string& name) {
  return files_.get(name, [&] {
    try {
      auto opened = std::make_unique<SafetensorsFile>(folder_ + "/" + name);
      if (manifest_) check_file_slices(*manifest_, name, opened->stored());
      return opened;
    } catch (const InputError& error) {
      if (!manifest_) throw;
      throw CheckpointError(error.what());
    }
  });
}

void CheckpointFiles::read_into(const ManifestTensor& tensor, const torch::Tensor& target, const Slice& wanted) {
  const auto slice_of = [&](const ManifestSlice& slice) { return open(slice.file).view(tensor.key()); };
  fill_from_slices(tensor, slice_of, target, wanted);
}

torch::Tensor CheckpointFiles::read(const ManifestTensor& tensor) {
  // Open the files before allocating memory: opening compares the sizes in the manifest with the files.
  for (const auto& slice : tensor.slices) open(slice.file);
  torch::Tensor full = torch::empty(tensor.shape, scalar_type_of(*tensor.type, tensor.key()));
  read_into(tensor, full, full_slice(tensor.shape));
  return full;
}

}  // namespace gantry
