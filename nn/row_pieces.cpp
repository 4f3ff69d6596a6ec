#include "gantry/nn/row_pieces.h"

#include <algorithm>
#include <numeric>

#include "gantry/nn/forward.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::nn {
namespace {

std::int64_t total(const Sizes& sizes) { return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}); }

torch::Tensor with_dim_first(const torch::Tensor& tensor, std::int64_t dim) {
  return tensor.movedim(dim, 0).contiguous();
}

std::vector<std::int64_t> shape_with(const torch::Tensor& tensor, std::int64_t dim, std::int64_t size) {
  std::vector<std::int64_t> shape = tensor.sizes().vec();
  shape[dim] = size;
  return shape;
}

}  // namespace

bool goes_in_pieces(const torch::Tensor& tensor, std::optional<int> dim, const ProcessGroup& group) {
  if (forward_now().tensor_pieces <= 1 || group.size() == 1) return false;
  return !dim || c10::maybe_wrap_dim(*dim, tensor.dim()) < tensor.dim() - 1;
}

RowChunks::RowChunks(Sizes sizes, std::int64_t dim, int pieces) : sizes_(std::move(sizes)), dim_(dim) {
  const std::int64_t longest = *std::max_element(sizes_.begin(), sizes_.end());
  count_ = static_cast<int>(std::clamp<std::int64_t>(pieces, 1, std::max<std::int64_t>(longest, 1)));
}

Range RowChunks::range(int rank, int piece) const {
  const std::int64_t size = sizes_[rank];
  return {size * piece / count_, size * (piece + 1) / count_};
}

Sizes RowChunks::sizes(int piece) const {
  Sizes sizes;
  for (int rank = 0; rank < static_cast<int>(sizes_.size()); ++rank) sizes.push_back(range(rank, piece).size());
  return sizes;
}

torch::Tensor RowChunks::of_full(const torch::Tensor& full, int piece) const {
  std::vector<torch::Tensor> parts;
  std::int64_t begin = 0;
  for (int rank = 0; rank < static_cast<int>(sizes_.size()); ++rank) {
    const Range of_rank = range(rank, piece);
    parts.push_back(full.narrow(dim_, begin + of_rank.begin, of_rank.size()).movedim(dim_, 0));
    begin += sizes_[rank];
  }
  return at::cat(parts).contiguous();
}

torch::Tensor RowChunks::of_part(const torch::Tensor& part, int rank, int piece) const {
  const Range of_rank = range(rank, piece);
  return with_dim_first(part.narrow(dim_, of_rank.begin, of_rank.size()), dim_);
}

void RowChunks::place_in_full(const torch::Tensor& full, int piece, const torch::Tensor& values) const {
  std::int64_t begin = 0, from = 0;
  for (int rank = 0; rank < static_cast<int>(sizes_.size()); ++rank) {
    const std::int64_t size = range(rank, piece).size();
    full.narrow(dim_, begin + range(rank, piece).begin, size).copy_(values.narrow(0, from, size).movedim(0, dim_));
    begin += sizes_[rank];
    from += size;
  }
}

void RowChunks::place_in_part(const torch::Tensor& part, int rank, int piece, const torch::Tensor& values) const {
  const Range of_rank = range(rank, piece);
  part.narrow(dim_, of_rank.begin, of_rank.size()).copy_(values.movedim(0, dim_));
}

ArrivingPieces::ArrivingPieces(ProcessGroup& group, const torch::Tensor& part, std::int64_t dim, const Sizes& sizes,
                               int pieces)
    : chunks_(sizes, dim, pieces), full_(at::empty(shape_with(part, dim, total(sizes)), part.options())) {
  for (int piece = 0; piece < chunks_.count(); ++piece) {
    Piece& one = pieces_.emplace_back();
    const Sizes of_ranks = chunks_.sizes(piece);
    one.sent = chunks_.of_part(part, group.rank(), piece);
    one.received = at::empty(shape_with(one.sent, 0, total(of_ranks)), one.sent.options());
    one.work = group.all_gather(one.received, one.sent, of_ranks);
  }
}

torch::Tensor ArrivingPieces::take(int piece) {
  Piece one = std::move(pieces_.at(piece));
  one.work.wait();
  chunks_.place_in_full(full_, piece, one.received);
  return one.received;
}

}  // namespace gantry::nn
