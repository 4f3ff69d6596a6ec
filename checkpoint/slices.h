// Slices of global tensors: which rank writes which, and how any part is put together from them.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "gantry/checkpoint/format/manifest.h"
#include "gantry/comm/process_group_mesh.h"
#include "gantry/tensors/state_source.h"
#include "gantry/tensors/tensor.h"

namespace gantry {

// What of a placement one rank has: ranges along a dim, or everything (dim -1). InternalError for a tensor that is
// sharded along two axes.
struct HeldPart {
  std::string axis;  // that shards it, or ""
  int dim = -1;
  std::vector<Range> ranges;  // what the rank holds
  std::vector<Range> owned;   // without what a lower rank has too
};
HeldPart part_held(const Placement& placement, const std::map<std::string, int>& coordinates);

// Distributes the writing of replicas over their holders, by bytes. Every holder of an entry calls turn_of in the same
// order and gets the same answer: true on the one rank of each slice that writes it.
class WriterShare {
 public:
  explicit WriterShare(const ProcessGroupMesh& mesh);
  bool turn_of(const HeldPart& part, std::int64_t bytes);

 private:
  std::int64_t& load(int data, int tensor) { return loads_[static_cast<std::size_t>(data * tensor_ + tensor)]; }
  int replicas_, tensor_;  // sizes of dp and tp
  int my_replica_, my_tensor_;
  std::vector<std::int64_t> loads_;
};

// These ranges of `whole` along `dim`, one after the other.
torch::Tensor cut_ranges(const torch::Tensor& whole, std::int64_t dim, const std::vector<Range>& ranges);

// The owned ranges of a held tensor, as it is where they are all of it.
torch::Tensor owned_part(const torch::Tensor& held, const HeldPart& part);

// Fills `target`, which is the ranges `wanted` along `wanted_dim` of the tensor (all of it for -1), from the slices.
// `slice_of` is asked only for slices that have something of it.
using SliceReader = std::function<torch::Tensor(const ManifestSlice&)>;
void fill_from_slices(const ManifestTensor& tensor, const SliceReader& slice_of, torch::Tensor target, int wanted_dim,
                      const std::vector<Range>& wanted);

}  // namespace gantry
