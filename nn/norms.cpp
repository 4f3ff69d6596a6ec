#include "gantry/nn/norms.h"

#include <torch/torch.h>

#include "gantry/nn/autograd_collectives.h"
#include "gantry/nn/output_observer.h"

namespace gantry::nn {

Placements NormImpl::shard(const ShardStyle& style, ProcessGroup& group) {
  if (std::holds_alternative<Whole>(style)) return {};
  const auto* sequence = std::get_if<SequenceParallel>(&style);
  if (!sequence) refuse_style("a norm", style, "SequenceParallel{}");
  if (sequence->gradient_sum == GradientSum::kInBackward && group.size() > 1) summed_over_ = &group;
  std::map<std::string, Shape> shapes;
  for (const auto& item : named_parameters(/*recurse=*/false)) shapes[item.key()] = item.value().sizes().vec();
  return split_parameters(shapes, style, group);
}

torch::Tensor NormImpl::used(const torch::Tensor& parameter) const {
  return summed_over_ ? copy_to_group(parameter, *summed_over_) : parameter;
}

LayerNormImpl::LayerNormImpl(std::int64_t size, double eps) : size_(size), eps_(eps) {
  weight = register_parameter("weight", torch::empty({size}));
  bias = register_parameter("bias", torch::empty({size}));
  torch::nn::init::ones_(weight);
  torch::nn::init::zeros_(bias);
}

torch::Tensor LayerNormImpl::forward(const torch::Tensor& input) {
  return observed(*this, torch::layer_norm(input, {size_}, used(weight), used(bias), eps_));
}

RmsNormImpl::RmsNormImpl(std::int64_t size, double eps) : size_(size), eps_(eps) {
  weight = register_parameter("weight", torch::empty({size}));
  torch::nn::init::ones_(weight);
}

torch::Tensor RmsNormImpl::forward(const torch::Tensor& input) {
  return observed(*this, at::rms_norm(input, {size_}, used(weight), eps_));
}

}  // namespace gantry::nn
