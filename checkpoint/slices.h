// Slices of global tensors: which rank writes which, and how any part is put together from them.
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

// Distributes the writing of replicas over the ranks that share a stage, by bytes. Each of them calls turn_of for the
// same entries in the same order: it is true on one rank of those that hold a part alike.
class WriterShare {
 public:
  explicit WriterShare(const ProcessGroupMesh& mesh);
  // `bytes`: of the full tensor.
  bool turn_of(const Placement& placement, std::int64_t bytes);

 private:
  // The ranks by their part of a tensor that is sharded over some axes. Ranks with the same number hold the same part.
  struct Parts {
    std::vector<int> part_of;  // by rank
    int count = 0;
  };
  const Parts& parts_of(const Placement& placement);

  const ProcessGroupMesh& mesh_;
  std::vector<int> ranks_;                           // of the world, ascending
  std::vector<std::int64_t> loads_;                  // by rank
  std::map<std::vector<std::string>, Parts> parts_;  // by the sharding axes
};

// The owned part of a held tensor: as it is where that is all of it, else of the shape of owned_slice.
torch::Tensor owned_part(const HeldTensor& held, const Coordinates& coordinates);

// Fills `target`, which holds `wanted` of the tensor, from the slices. `slice_of` is asked only for slices that have
// something of it.
using SliceReader = std::function<torch::Tensor(const ManifestSlice&)>;
void fill_from_slices(const ManifestTensor& tensor, const SliceReader& slice_of, const torch::Tensor& target,
                      const Slice& wanted);

}  // namespace gantry
