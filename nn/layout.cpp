#include "gantry/nn/layout.h"

#include <fmt/format.h>
#include <numeric>

#include "gantry/core/error.h"
#include "gantry/core/placement.h"
#include "gantry/nn/autograd_collectives.h"
#include "gantry/nn/forward.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry {
namespace {

torch::Tensor gathered(const torch::Tensor& part, ProcessGroup& group, int dim) {
  return gather_from_group(part, group, dim, nn::shard_sizes(part.size(dim), group));
}

// The full tensor, which is zero outside of this rank's part.
torch::Tensor embedded(const torch::Tensor& part, ProcessGroup& group, int dim) {
  const Sizes sizes = nn::shard_sizes(part.size(dim), group);
  std::vector<torch::Tensor> pieces;
  for (int rank = 0; rank < group.size(); ++rank) {
    std::vector<std::int64_t> shape = part.sizes().vec();
    shape[dim < 0 ? dim + part.dim() : dim] = sizes[rank];
    pieces.push_back(rank == group.rank() ? part : torch::zeros(shape, part.options().requires_grad(false)));
  }
  return torch::cat(pieces, dim);
}

torch::Tensor from_replicate(const torch::Tensor& tensor, ProcessGroup& group, const Layout& to) {
  if (const auto* shard = std::get_if<Shard>(&to))
    return split_to_group(tensor, group, shard->dim, nn::partition_sizes(tensor.size(shard->dim), group));
  if (std::holds_alternative<Replicate>(to)) return tensor;
  return group.rank() == 0 ? tensor * 1 : tensor - tensor.detach();  // only rank 0's values count
}

torch::Tensor from_partial(const torch::Tensor& tensor, ProcessGroup& group, const Layout& to) {
  if (const auto* shard = std::get_if<Shard>(&to))
    return reduce_scatter_to_group(tensor, group, shard->dim, nn::partition_sizes(tensor.size(shard->dim), group));
  return std::holds_alternative<Replicate>(to) ? reduce_from_group(tensor, group) : tensor;
}

}  // namespace

torch::Tensor redistribute(const torch::Tensor& tensor, ProcessGroup& group, const Layout& from, const Layout& to) {
  for (const Layout& layout : {from, to})
    if (const auto* shard = std::get_if<Shard>(&layout);
        shard && (shard->dim >= tensor.dim() || shard->dim < -tensor.dim()))
      throw UsageError({"redistribute", fmt::format("{} does not fit a tensor {}", describe(layout), describe(tensor)),
                        fmt::format("a dimension from {} to {}", -tensor.dim(), tensor.dim() - 1), ""});
  if (from == to) return tensor;
  if (std::holds_alternative<Replicate>(from)) return from_replicate(tensor, group, to);
  if (std::holds_alternative<Partial>(from)) return from_partial(tensor, group, to);
  const int dim = std::get<Shard>(from).dim;
  if (std::holds_alternative<Partial>(to)) return embedded(tensor, group, dim);
  return from_replicate(gathered(tensor, group, dim), group, to);
}

namespace nn {

Sizes partition_sizes(std::int64_t total, const ProcessGroup& group) {
  Sizes sizes;
  for (const Range& range : partition(total, 1, group.size(), /*allow_empty=*/true)) sizes.push_back(range.size());
  return sizes;
}

Sizes shard_sizes(std::int64_t local, ProcessGroup& group) {
  if (group.size() == 1) return {local};
  const std::int64_t total = sequence_length();
  if (total == 0) return all_gather_numbers(group, local);
  Sizes sizes = partition_sizes(total, group);
  if (sizes[group.rank()] != local) {
    throw InputError(
        {"sequence shard",
         fmt::format("rank {} has {} of the {} tokens of {} ranks", group.rank(), local, total, group.size()),
         fmt::format("{} tokens, partitioned as evenly as possible", sizes[group.rank()]),
         "pass the activations on without changing the length of the sequence"});
  }
  return sizes;
}

}  // namespace nn
}  // namespace gantry
