// Slices of global tensors: distributes their writing over ranks, and assembles any part from them.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "gantry/checkpoint/format/manifest.h"
#include "gantry/comm/process_group_mesh.h"
#include "gantry/tensors/slice_copy.h"
#include "gantry/tensors/state_source.h"

namespace gantry {

// Distributes the writing of replicas over the ranks that share a stage, balanced by bytes. Each of these
// ranks calls turn_of() for the same entries in the same order. It returns true on exactly one of the ranks
// that hold the same part.
class WriterShare {
 public:
  explicit WriterShare(const ProcessGroupMesh& mesh);
  // `bytes`: size of the full tensor.
  bool turn_of(const Placement& placement, std::int64_t bytes);

 private:
  // The ranks by their part of a tensor that is sharded over some axes. Ranks with the same number hold the same part.
  struct Parts {
    std::vector<int> part_of;  // by rank
    int count = 0;
  };
  const Parts& parts_of(const Placement& placement);

  const ProcessGroupMesh& mesh_;
  std::vector<int> ranks_;                           // global ranks, ascending
  std::vector<std::int64_t> loads_;                  // by rank
  std::map<std::vector<std::string>, Parts> parts_;  // by the sharding axes
};

// The owned part of a held tensor: the tensor itself if the rank owns all of it, otherwise a tensor with the
// shape of owned_slice().
torch::Tensor owned_part(const HeldTensor& held, const Coordinates& coordinates);

// Fills `target`, which holds the part `wanted` of the tensor, from the slices. `slice_of` is called only for
// slices that overlap `wanted`.
using SliceReader = std::function<torch::Tensor(const ManifestSlice&)>;
void fill_from_slices(const ManifestTensor& tensor, const SliceReader& slice_of, const torch::Tensor& target,
                      const Slice& wanted);

}  // namespace gantry
