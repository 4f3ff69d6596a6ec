#include "gantry/checkpoint/format/tiling.h"

#include <algorithm>
#include <fmt/format.h>

#include "gantry/checkpoint/format/damage.h"
#include "gantry/core/error.h"

namespace gantry {
namespace {

[[noreturn]] void refuse_tiling(const ManifestTensor& tensor, const std::string& what,
                                const std::string& expected = "") {
  throw CheckpointError({tensor.key(), what, expected, kDamaged});
}

// True if each slice has one shard, all along the same dim. Slices over several axes have more shards.
bool are_along_one_dim(const ManifestTensor& tensor) {
  return std::all_of(tensor.slices.begin(), tensor.slices.end(), [&](const ManifestSlice& slice) {
    return slice.shards.size() == 1 && slice.shards.front().row == 0 &&
           slice.shards.front().dim == tensor.slices.front().shards.front().dim;
  });
}

void check_tiling_along(const ManifestTensor& tensor, int dim) {
  std::vector<Range> ranges;
  for (const auto& slice : tensor.slices)
    ranges.insert(ranges.end(), slice.shards.front().ranges.begin(), slice.shards.front().ranges.end());
  std::erase_if(ranges, [](const Range& range) { return range.size() == 0; });
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  std::int64_t covered = 0;
  for (const Range& range : ranges) {
    if (range.begin != covered)
      refuse_tiling(tensor, fmt::format("its slices {} at {} along dim {}",
                                        range.begin > covered ? "leave a hole" : "overlap", covered, dim));
    covered = range.end;
  }
  if (covered != tensor.shape[dim])
    refuse_tiling(tensor, fmt::format("its slices cover {} of {} along dim {}", covered, tensor.shape[dim], dim));
}

}  // namespace

Covering covering_of(const ManifestTensor& tensor) {
  std::vector<Slice> slices;
  for (const auto& slice : tensor.slices) slices.push_back(tensor.slice_of(slice));
  return covering_of(tensor.shape, slices);
}

void check_tiling(const ManifestTensor& tensor) {
  if (tensor.slices.empty()) refuse_tiling(tensor, "it has no slices");
  if (tensor.slices.size() == 1 && tensor.slices.front().shards.empty()) return;
  if (!tensor.slices.front().shards.empty() && are_along_one_dim(tensor))
    return check_tiling_along(tensor, tensor.slices.front().shards.front().dim);
  const Covering covering = covering_of(tensor);
  if (!covering.is_known) refuse_tiling(tensor, "it has too many slices to check whether they tile it", "fewer slices");
  if (covering.has_overlap) refuse_tiling(tensor, "its slices overlap", "slices that tile the tensor");
  if (covering.has_hole) refuse_tiling(tensor, "its slices leave a hole", "slices that tile the tensor");
}

}  // namespace gantry
