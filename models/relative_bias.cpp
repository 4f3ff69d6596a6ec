#include "gantry/models/relative_bias.h"

#include <cmath>

#include <torch/torch.h>

#include "gantry/nn/autograd_collectives.h"

namespace gantry::models {

// Half of the buckets are for one distance each, the others grow by powers up to max_distance. In float32, as the
// models were trained: a distance at a border falls to either side by its rounding.
torch::Tensor relative_buckets(const RelativeBuckets& buckets, std::int64_t queries, std::int64_t keys,
                               torch::Device device) {
  const auto integers = torch::TensorOptions(torch::kInt64).device(device);
  const torch::Tensor ahead =
      torch::arange(keys, integers).unsqueeze(0) - torch::arange(keys - queries, keys, integers).unsqueeze(1);
  const std::int64_t count = buckets.bidirectional ? buckets.count / 2 : buckets.count, exact = count / 2;
  const torch::Tensor distance = buckets.bidirectional ? ahead.abs() : ahead.neg().clamp_min(0);
  const double powers = std::log(static_cast<double>(buckets.max_distance) / static_cast<double>(exact));
  const torch::Tensor grown =
      (distance.to(torch::kFloat32) / static_cast<double>(exact)).log() / powers * static_cast<double>(count - exact);
  // Of distance 0 the logarithm is no number; it is not used.
  const torch::Tensor far = (grown.clamp_min(0).to(torch::kInt64) + exact).clamp_max(count - 1);
  const torch::Tensor near = torch::where(distance < exact, distance, far);
  return buckets.bidirectional ? near + (ahead > 0).to(torch::kInt64) * count : near;
}

RelativeBiasImpl::RelativeBiasImpl(const RelativeBuckets& buckets, std::int64_t heads) : buckets_(buckets) {
  weight = register_parameter("weight", torch::empty({buckets.count, heads}));
  torch::nn::init::normal_(weight);
}

torch::Tensor RelativeBiasImpl::forward(std::int64_t queries, std::int64_t keys, const nn::HeadRange& heads) const {
  const torch::Tensor used = summed_over_ ? copy_to_group(weight, *summed_over_) : weight;
  const torch::Tensor index = relative_buckets(buckets_, queries, keys, weight.device()).flatten();
  return used.narrow(1, heads.first, heads.count).index_select(0, index).t().view({heads.count, queries, keys});
}

Placements RelativeBiasImpl::shard(const ShardStyle& style, ProcessGroup& group) {
  const auto* on_heads = std::get_if<OnHeads>(&style);
  if (!on_heads) refuse_style("a RelativeBias", style, "OnHeads{}");
  if (on_heads->gradient_sum == GradientSum::kInBackward && group.size() > 1) summed_over_ = &group;
  return split_parameters({{"weight", weight.sizes().vec()}}, style, group);
}

}  // namespace gantry::models
