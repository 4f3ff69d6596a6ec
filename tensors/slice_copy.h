// Takes parts of global tensors in memory, and copies from one slice to another.
#pragma once

#include <vector>

#include "gantry/core/slice.h"
#include "gantry/tensors/tensor.h"

namespace gantry {

// The memory of one box of a slice that is held as `tensor`, as a view of the box's shape. `tensor` has the slice's
// elements, in any shape if rows were sharded, else in the slice's.
torch::Tensor box_view(const torch::Tensor& tensor, const Slice& slice, std::size_t box);

// Copies what both slices have from `source` to `target`, which hold them. The types and devices may differ.
void copy_common(const torch::Tensor& target, const Slice& target_slice, const torch::Tensor& source,
                 const Slice& source_slice);

// The parts of `tensor`, which holds `held`, that `wanted` has too, as views: one for each block that they have in
// common.
std::vector<torch::Tensor> common_views(const torch::Tensor& tensor, const Slice& held, const Slice& wanted);

// These ranges of `full` along `dim`, one after the other.
torch::Tensor take_ranges(const torch::Tensor& full, std::int64_t dim, const std::vector<Range>& ranges);

// The slice of a full tensor, in the slice's shape: the tensor itself if the slice is all of it.
torch::Tensor take_slice(const torch::Tensor& full, const Slice& slice);

}  // namespace gantry
