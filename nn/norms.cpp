#include "gantry/nn/norms.h"

#include "gantry/nn/autograd_collectives.h"
#include "gantry/nn/output_observer.h"
#include "gantry/nn/overlap.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::nn {

Placements NormImpl::shard(const ShardStyle& style, const ShardAxes& axes) {
  if (std::holds_alternative<FullSequence>(style)) return {};
  const auto* sequence = std::get_if<SequenceParallel>(&style);
  const auto* heads = std::get_if<OnHeads>(&style);
  if (!sequence && !heads) refuse_style("a norm", style, "SequenceParallel{} or OnHeads{}");
  const GradientSum sum = sequence ? sequence->gradient_sum : heads->gradient_sum;
  if (sum == GradientSum::kInBackward && axes.ranks() > 1) summed_over_ = &axes.group();
  std::map<std::string, Shape> shapes;
  for (const auto& item : named_parameters(/*recurse=*/false)) shapes[item.key()] = item.value().sizes().vec();
  return split_parameters(shapes, style, axes);
}

torch::Tensor NormImpl::used(const torch::Tensor& parameter) const {
  return summed_over_ && parameter.defined() ? copy_to_group(parameter, *summed_over_) : parameter;
}

LayerNormImpl::LayerNormImpl(std::int64_t size, double eps, LayerNormParameters parameters, NormScale scale)
    : size_(size), eps_(eps), scale_(scale) {
  if (parameters != LayerNormParameters::kNone) {
    weight = register_parameter("weight", torch::empty({size}));
    torch::nn::init::constant_(weight, scale == NormScale::kWeight ? 1 : 0);
  }
  if (parameters == LayerNormParameters::kWeightAndBias) {
    bias = register_parameter("bias", torch::empty({size}));
    torch::nn::init::zeros_(bias);
  }
}

torch::Tensor LayerNormImpl::forward(const torch::Tensor& input) {
  const torch::Tensor factor = scale_ == NormScale::kWeight ? used(weight) : used(weight) + 1;
  return observed(*this, torch::layer_norm(input, {size_}, factor, used(bias), eps_));
}

RmsNormImpl::RmsNormImpl(std::int64_t size, double eps, NormScale scale) : size_(size), eps_(eps), scale_(scale) {
  if (scale_ == NormScale::kOne) return;
  weight = register_parameter("weight", torch::empty({size}));
  if (scale_ == NormScale::kWeight)
    torch::nn::init::ones_(weight);
  else
    torch::nn::init::zeros_(weight);
}

torch::Tensor RmsNormImpl::forward(const torch::Tensor& input) {
  if (scale_ == NormScale::kOne) return observed(*this, at::rms_norm(input, {size_}, {}, eps_));
  if (scale_ == NormScale::kWeight) return observed(*this, at::rms_norm(input, {size_}, used(weight), eps_));
  const torch::ScalarType wide = at::promote_types(input.scalar_type(), torch::kFloat32);
  return observed(*this,
                  at::rms_norm(input.to(wide), {size_}, used(weight).to(wide) + 1, eps_).to(input.scalar_type()));
}

ShardedNormImpl::ShardedNormImpl(const char* name, std::vector<std::int64_t> shape)
    : name_(name), shape_(std::move(shape)) {
  weight = register_parameter("weight", torch::empty(shape_));
  torch::nn::init::ones_(weight);
}

Placements ShardedNormImpl::shard(const ShardStyle& style, const ShardAxes& axes) {
  const auto* column = std::get_if<Column>(&style);
  if (!column) refuse_style(name_, style, "Column{}");
  group_ = &axes.group();
  gradient_sum_ = column->gradient_sum;
  const Placements placements = split_parameters({{"weight", shape_}}, style, axes);
  placement_ = shard_of(placements, "weight");
  shard_parameters(*this, placements, axes);
  return placements;
}

torch::Tensor ShardedNormImpl::used_weight() const {
  if (!placement_.sharded() || gradient_sum_ != GradientSum::kInBackward) return weight;
  return with_summed_overlaps(weight, placement_, *group_);
}

SplitRmsNormImpl::SplitRmsNormImpl(std::int64_t size, double eps)
    : ShardedNormImpl("a SplitRmsNorm", {size}), size_(size), eps_(eps) {}

torch::Tensor SplitRmsNormImpl::owned(const torch::Tensor& features) const {
  if (!placement().overlaps()) return features;
  std::vector<torch::Tensor> parts;
  std::int64_t offset = 0;
  const auto held = placement().ranges(group().rank()), mine = placement().owned(group().rank());
  for (std::size_t i = 0; i < held.size(); ++i) {
    parts.push_back(features.narrow(-1, offset + mine[i].begin - held[i].begin, mine[i].size()));
    offset += held[i].size();
  }
  return torch::cat(parts, -1);
}

torch::Tensor SplitRmsNormImpl::forward(const torch::Tensor& input) {
  const torch::ScalarType wide = at::promote_types(input.scalar_type(), torch::kFloat32);
  const torch::Tensor features = input.to(wide);
  torch::Tensor squares = owned(features).square().sum(-1, /*keepdim=*/true);
  // Every rank's features follow from the sum, so its gradient is the sum of all ranks'.
  if (placement().sharded()) squares = copy_to_group(reduce_from_group(squares, group()), group());
  const torch::Tensor normed = features * torch::rsqrt(squares / static_cast<double>(size_) + eps_);
  return observed(*this, (normed * used_weight().to(wide)).to(input.scalar_type()));
}

HeadsLayerNormImpl::HeadsLayerNormImpl(std::int64_t heads, std::int64_t size, double eps)
    : ShardedNormImpl("a HeadsLayerNorm", {heads, size}), size_(size), eps_(eps) {}

torch::Tensor HeadsLayerNormImpl::forward(const torch::Tensor& input) {
  const torch::ScalarType wide = at::promote_types(input.scalar_type(), torch::kFloat32);
  const torch::Tensor normed = torch::layer_norm(input.to(wide), {size_}, {}, {}, eps_);
  return observed(*this, (normed * used_weight().to(wide)).to(input.scalar_type()));
}

}  // namespace gantry::nn
