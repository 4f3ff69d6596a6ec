#include "gantry/plugins/top_tokens.h"

#include <algorithm>
#include <tuple>

#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

struct Largest {
  torch::Tensor values, places;
};

// The places of the k largest values of each row. topk() takes any of equal values; here the first ones are taken.
torch::Tensor places_of_largest(const torch::Tensor& rows, std::int64_t k) {
  auto [values, places] = rows.topk(k, 1);
  const torch::Tensor least = values.amin(1, /*keepdim=*/true);
  const torch::Tensor crowded = ((rows == least).sum(1) != (values == least).sum(1)).nonzero().squeeze(1);
  if (crowded.numel() == 0) return places;
  const auto sorted = rows.index_select(0, crowded).sort(/*stable=*/true, 1, /*descending=*/true);
  return places.index_copy_(0, crowded, std::get<1>(sorted).narrow(1, 0, k));
}

// The k largest values of each row, in descending order, and of equal values the first ones, in ascending order.
Largest largest_of(const torch::Tensor& rows, std::int64_t k) {
  const torch::Tensor places = std::get<0>(places_of_largest(rows, k).sort(1));
  const auto [values, order] = rows.gather(1, places).sort(/*stable=*/true, 1, /*descending=*/true);
  return {values, places.gather(1, order)};
}

// log sum exp over the columns of all ranks, [rows, 1].
torch::Tensor log_total(const torch::Tensor& rows, ProcessGroup* group) {
  torch::Tensor largest = rows.amax(1, /*keepdim=*/true);
  if (group) group->all_reduce(largest, ReduceOp::kMax).wait();
  torch::Tensor total = (rows - largest).exp().sum(1, /*keepdim=*/true);
  if (group) group->all_reduce(total).wait();
  return total.log() + largest;
}

torch::ScalarType bits_of(torch::ScalarType real) { return real == torch::kFloat64 ? torch::kInt64 : torch::kInt32; }

}  // namespace

TopTokens top_tokens(const torch::Tensor& logits, std::int64_t k, const SplitDim* split) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor rows = logits.to(at::promote_types(logits.scalar_type(), torch::kFloat32));
  if (!split) {
    const Largest all = largest_of(rows, k);
    return {all.places, all.values - log_total(rows, nullptr)};
  }
  ProcessGroup& group = *split->group;
  Sizes sizes;
  for (int rank = 0; rank < group.size(); ++rank) sizes.push_back(std::min(k, split->placement.local_size(rank)));
  const Largest own = largest_of(rows, sizes[static_cast<std::size_t>(group.rank())]);
  const std::int64_t first = split->placement.ranges(group.rank()).front().begin;
  // Equal values of all ranks are in ascending order of their tokens.
  const torch::Tensor values = all_gather_along(group, own.values, 1, sizes),
                      tokens = all_gather_along(group, own.places + first, 1, sizes);
  const Largest all = largest_of(values, k);
  return {tokens.gather(1, all.places), all.values - log_total(rows, &group)};
}

torch::Tensor packed(const TopTokens& top) {
  const torch::ScalarType type = bits_of(top.logs.scalar_type());
  return torch::cat({top.tokens.to(type), top.logs.contiguous().view(type)}, -1);
}

TopTokens unpacked(const torch::Tensor& packed) {
  const std::int64_t k = packed.size(-1) / 2;
  const torch::ScalarType real = packed.scalar_type() == torch::kInt64 ? torch::kFloat64 : torch::kFloat32;
  return {packed.narrow(-1, 0, k).to(torch::kInt64), packed.narrow(-1, k, k).contiguous().view(real)};
}

}  // namespace gantry
