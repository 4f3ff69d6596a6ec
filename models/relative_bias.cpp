#include "gantry/models/relative_bias.h"

#include <cmath>

#include "gantry/nn/autograd_collectives.h"
#include "gantry/nn/forward.h"
#include "gantry/nn/weight_gradient.h"
#include "gantry/tensors/kernels/add_rows.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::models {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

// The numbers of the buckets `index` for `count` heads from `first` on, [count, size of index]. The gradient
// of each bucket is summed in float32 or wider, and added once.
struct LookUpBias : torch::autograd::Function<LookUpBias> {
  static Variable forward(AutogradContext* context, const Variable& table, const torch::Tensor& index,
                          std::int64_t first, std::int64_t count) {
    context->save_for_backward({table, index});
    context->saved_data["first"] = first;
    context->saved_data["store"] = reinterpret_cast<std::int64_t>(forward_now().weight_gradients);
    return table.narrow(1, first, count).t().index_select(1, index);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const torch::Tensor &table = saved[0], &index = saved[1], &given = gradients[0];
    const std::int64_t first = context->saved_data["first"].toInt();
    const auto add = [table, index, given, first](torch::Tensor& into) {
      const torch::ScalarType wide = at::promote_types(given.scalar_type(), torch::kFloat32);
      const torch::Tensor rows = given.t().contiguous();
      torch::Tensor sums = torch::zeros({table.size(0), rows.size(1)}, rows.options().dtype(wide));
      kernels::add_rows(sums, index, rows);
      into.narrow(1, first, rows.size(1)).add_(sums.to(into.scalar_type()));
    };
    const auto make = [&] {
      torch::Tensor full = torch::zeros_like(table);
      add(full);
      return full;
    };
    auto* store = reinterpret_cast<nn::WeightGradientStore*>(context->saved_data["store"].toInt());
    return {nn::give_gradient(table, store, add, make), {}, {}, {}};
  }
};

}  // namespace

// Half of the buckets are for one distance each. The others grow by powers up to max_distance. They are
// computed in float32, as in the training of the models, because rounding decides the bucket of a distance at
// a border.
torch::Tensor relative_buckets(const RelativeBuckets& buckets, const torch::Tensor& queries,
                               const torch::Tensor& keys) {
  const torch::Tensor ahead = keys.unsqueeze(0) - queries.unsqueeze(1);
  const std::int64_t count = buckets.bidirectional ? buckets.count / 2 : buckets.count, exact = count / 2;
  const torch::Tensor distance = buckets.bidirectional ? ahead.abs() : ahead.neg().clamp_min(0);
  const double powers = std::log(static_cast<double>(buckets.max_distance) / static_cast<double>(exact));
  const torch::Tensor grown =
      (distance.to(torch::kFloat32) / static_cast<double>(exact)).log() / powers * static_cast<double>(count - exact);
  // The logarithm of distance 0 is infinite, but it is not used.
  const torch::Tensor far = (grown.clamp_min(0).to(torch::kInt64) + exact).clamp_max(count - 1);
  const torch::Tensor near = torch::where(distance < exact, distance, far);
  return buckets.bidirectional ? near + (ahead > 0).to(torch::kInt64) * count : near;
}

RelativeBiasImpl::RelativeBiasImpl(const RelativeBuckets& buckets, std::int64_t heads) : buckets_(buckets) {
  weight = register_parameter("weight", torch::empty({buckets.count, heads}));
  torch::nn::init::normal_(weight);
}

torch::Tensor RelativeBiasImpl::forward(const torch::Tensor& queries, std::int64_t keys,
                                        const nn::HeadRange& heads) const {
  const torch::Tensor used = summed_over_ ? copy_to_group(weight, *summed_over_) : weight;
  const torch::Tensor index = relative_buckets(buckets_, queries, torch::arange(keys, queries.options())).flatten();
  const std::int64_t first = heads.first;
  return LookUpBias::apply(used, index, first, heads.count).view({heads.count, queries.size(0), keys});
}

Placements RelativeBiasImpl::shard(const ShardStyle& style, const ShardAxes& axes) {
  const auto* on_heads = std::get_if<OnHeads>(&style);
  if (!on_heads) refuse_style("a RelativeBias", style, "OnHeads{}");
  if (on_heads->gradient_sum == GradientSum::kInBackward && axes.ranks() > 1) summed_over_ = &axes.group();
  return split_parameters({{"weight", weight.sizes().vec()}}, style, axes);
}

}  // namespace gantry::models
