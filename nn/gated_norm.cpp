#include "gantry/nn/gated_norm.h"

#include "gantry/nn/autograd_collectives.h"
#include "gantry/nn/mixers/chunks.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::nn {

GatedNormImpl::GatedNormImpl(const GatedNormOptions& options)
    : ShardedNormImpl("a GatedNorm", {options.heads * options.head_size}), options_(options) {}

// [..., local heads, head size] -> the same shape.
torch::Tensor GatedNormImpl::normalised(const torch::Tensor& features) const {
  const std::int64_t of_group = options_.heads / options_.groups, local = features.size(-2);
  const std::int64_t first =
      placement().sharded() ? placement().ranges(group().rank()).front().begin / options_.head_size : 0;
  const torch::Tensor heads =
      torch::arange(first, first + local, torch::TensorOptions(torch::kInt64).device(features.device()));
  const torch::Tensor read = torch::floor_divide(heads, of_group);
  const torch::Tensor of_heads = features.square().sum(-1);  // [..., local heads]
  std::vector<std::int64_t> shape = of_heads.sizes().vec();
  shape.back() = options_.groups;
  torch::Tensor squares = torch::zeros(shape, of_heads.options()).index_add(-1, read, of_heads);
  // Every rank's features follow from the sum, so its gradient is the sum of all ranks'.
  if (placement().sharded() && options_.groups % group().size() != 0)
    squares = copy_to_group(reduce_from_group(squares, group()), group());
  const torch::Tensor mean = squares / static_cast<double>(of_group * options_.head_size);
  return features * torch::rsqrt(mean + options_.eps).index_select(-1, read).unsqueeze(-1);
}

torch::Tensor GatedNormImpl::forward(const torch::Tensor& input, const torch::Tensor& gate) {
  const torch::ScalarType wide = wide_type(input);
  std::vector<std::int64_t> by_head = input.sizes().vec();
  by_head.back() /= options_.head_size;
  by_head.push_back(options_.head_size);
  const torch::Tensor factor = torch::silu(gate.to(wide));
  const torch::Tensor features = options_.before_gate ? input.to(wide) : input.to(wide) * factor;
  const torch::Tensor normed = normalised(features.view(by_head)).view(input.sizes()) * used_weight().to(wide);
  return (options_.before_gate ? normed * factor : normed).to(input.scalar_type());
}

}  // namespace gantry::nn
