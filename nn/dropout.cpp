#include "gantry/nn/dropout.h"

#include <fmt/format.h>
#include <numeric>

#include "gantry/core/error.h"
#include "gantry/nn/forward.h"
#include "gantry/nn/sequence_part.h"
#include "gantry/nn/stage_context.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::nn {

DropoutImpl::DropoutImpl(double p) : p_(p) {
  if (!(p >= 0 && p < 1))
    throw ConfigError({"dropout", fmt::format("the probability is {}", p), "a number from 0 to below 1", ""});
}

Placements DropoutImpl::shard(const ShardStyle& style, const ShardAxes& axes) {
  if (std::holds_alternative<FullSequence>(style)) return {};
  const auto* sequence = std::get_if<SequenceParallel>(&style);
  if (!sequence) refuse_style("a Dropout", style, "SequenceParallel{}");
  dim_ = sequence->dim;
  if (axes.ranks() > 1) group_ = &axes.group();
  return {};
}

torch::Tensor DropoutImpl::forward(const torch::Tensor& input) {
  if (!is_training() || p_ == 0) return input;
  const RandomContext context = random_context();
  const auto dim = static_cast<std::size_t>(dim_ < 0 ? dim_ + input.dim() : dim_);
  std::vector<std::int64_t> offset(input.dim(), 0), global = input.sizes().vec();
  offset[0] = context.first_sample;
  if (group_) {
    const Sizes sizes = shard_sizes(input.size(dim_), *group_);
    offset[dim] += std::accumulate(sizes.begin(), sizes.begin() + group_->rank(), std::int64_t{0});
    global[dim] = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  }
  if (features_.second > 0) {
    offset.back() = features_.first;
    global.back() = features_.second;
  }
  if (const auto& stage = forward_now().stage; stage && stage->sequence())
    return input * dropout_mask_of_part(input, p_, name_in_model_, context, offset, global,
                                        static_cast<std::int64_t>(dim), *stage->sequence(), offset[dim]);
  return input * dropout_mask(input, p_, name_in_model_, context, offset, global);
}

}  // namespace gantry::nn
