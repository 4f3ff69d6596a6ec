#include "gantry/tensors/slice_copy.h"

#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

torch::Tensor block_of(torch::Tensor box, const Block& block) {
  for (std::size_t dim = 0; dim < block.size.size(); ++dim)
    if (box.size(static_cast<std::int64_t>(dim)) != block.size[dim])
      box = box.narrow(static_cast<std::int64_t>(dim), block.begin[dim], block.size[dim]);
  return box;
}

}  // namespace

torch::Tensor box_view(const torch::Tensor& tensor, const Slice& slice, std::size_t box) {
  if (!slice.is_flat()) return tensor;
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < box; ++i) offset += elements_of(slice.boxes[i].shape());
  const Shape shape = slice.boxes[box].shape();
  return tensor.view({-1}).narrow(0, offset, elements_of(shape)).view(shape);
}

void copy_common(const torch::Tensor& target, const Slice& target_slice, const torch::Tensor& source,
                 const Slice& source_slice) {
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < target_slice.boxes.size(); ++i)
    for (std::size_t j = 0; j < source_slice.boxes.size(); ++j)
      common_blocks(target_slice.boxes[i], source_slice.boxes[j], [&](const Block& here, const Block& there) {
        block_of(box_view(target, target_slice, i), here).copy_(block_of(box_view(source, source_slice, j), there));
      });
}

std::vector<torch::Tensor> common_views(const torch::Tensor& tensor, const Slice& held, const Slice& wanted) {
  std::vector<torch::Tensor> views;
  for (std::size_t i = 0; i < held.boxes.size(); ++i)
    for (const Box& box : wanted.boxes)
      common_blocks(held.boxes[i], box, [&](const Block& here, const Block&) {
        views.push_back(block_of(box_view(tensor, held, i), here));
      });
  return views;
}

torch::Tensor take_ranges(const torch::Tensor& full, std::int64_t dim, const std::vector<Range>& ranges) {
  std::vector<torch::Tensor> pieces;
  for (const Range& range : ranges) pieces.push_back(full.narrow(dim, range.begin, range.size()));
  return torch::cat(pieces, dim);
}

torch::Tensor take_slice(const torch::Tensor& full, const Slice& slice) {
  if (slice == full_slice(slice.global)) return full;
  torch::Tensor part = torch::empty(slice.shape, full.options().requires_grad(false));
  copy_common(part, slice, full.detach(), full_slice(slice.global));
  return part;
}

}  // namespace gantry
