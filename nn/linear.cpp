#include "gantry/nn/linear.h"

#include <fmt/format.h>

#include "gantry/comm/autograd_collectives.h"
#include "gantry/core/error.h"
#include "gantry/nn/weight_gradient.h"
#include "gantry/tensors/deferred_init.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

// y = x W^T + b over rows. `input_sum` is the group over which the input's gradient is summed, or null.
struct LinearFunction : torch::autograd::Function<LinearFunction> {
  static Variable forward(AutogradContext* context, const Variable& input, const Variable& weight,
                          const std::optional<torch::Tensor>& bias, ProcessGroup* input_sum) {
    const torch::Tensor rows = input.reshape({-1, weight.size(1)});
    context->save_for_backward({rows, weight, bias.value_or(torch::Tensor())});
    context->saved_data["shape"] = input.sizes().vec();
    context->saved_data["group"] = reinterpret_cast<std::int64_t>(input_sum);
    torch::Tensor output = bias ? at::addmm(*bias, rows, weight.t()) : at::mm(rows, weight.t());
    std::vector<std::int64_t> shape = input.sizes().vec();
    shape.back() = weight.size(0);
    return output.view(shape);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const torch::Tensor &rows = saved[0], &weight = saved[1], &bias = saved[2];
    auto* group = reinterpret_cast<ProcessGroup*>(context->saved_data["group"].toInt());
    const torch::Tensor gradient = gradients[0].reshape({-1, weight.size(0)});

    torch::Tensor input_gradient;
    Work work;
    if (context->needs_input_grad(0)) {
      input_gradient = at::mm(gradient, weight);
      if (group) work = group->all_reduce(input_gradient);  // under way while the weight's gradient is computed
    }
    if (weight.requires_grad()) gradient_of(weight).addmm_(gradient.t(), rows);
    if (bias.defined() && bias.requires_grad()) gradient_of(bias).add_(gradient.sum(0));
    work.wait();
    if (input_gradient.defined()) input_gradient = input_gradient.view(context->saved_data["shape"].toIntVector());
    return {input_gradient, {}, {}, {}};
  }
};

Sizes sizes_along(const AxisPlacement& placement, const ProcessGroup& group) {
  Sizes sizes;
  for (int rank = 0; rank < group.size(); ++rank) sizes.push_back(placement.local_size(rank));
  return sizes;
}

}  // namespace

LinearImpl::LinearImpl(const torch::nn::LinearOptions& options) : options(options) {
  weight = register_parameter("weight", torch::empty({options.out_features(), options.in_features()}));
  if (options.bias()) bias = register_parameter("bias", torch::empty({options.out_features()}));
  reset_parameters();
}

void LinearImpl::reset_parameters() {
  torch::nn::init::kaiming_uniform_(weight, std::sqrt(5.0));
  if (!bias.defined()) return;
  const double bound = 1 / std::sqrt(static_cast<double>(options.in_features()));
  torch::nn::init::uniform_(bias, -bound, bound);
}

void LinearImpl::tie_weight(const torch::Tensor& other) {
  if (other.sizes() != weight.sizes())
    throw ConfigError({"tied weight", describe(other) + " is not " + describe(weight), "equal shapes", ""});
  weight = parameters_["weight"] = other;
}

torch::Tensor LinearImpl::forward(const torch::Tensor& input) {
  const Row* row = style_ ? std::get_if<Row>(&*style_) : nullptr;
  if (!row) {
    ProcessGroup* input_sum = group_ && group_->size() > 1 ? group_ : nullptr;
    const torch::Tensor output = LinearFunction::apply(input, weight, optional_bias(), input_sum);
    const bool gather = style_ && std::get<Column>(*style_).gather_output;
    return gather ? gather_columns(output) : output;
  }
  const torch::Tensor part =
      row->input_is_parallel ? input : split_to_group(input, *group_, -1, sizes_along(weight_placement_, *group_));
  const torch::Tensor sum = LinearFunction::apply(part, weight, std::optional<torch::Tensor>(), nullptr);
  if (!row->reduce_output) return sum;
  const torch::Tensor output = reduce_from_group(sum, *group_);
  return bias.defined() && !row->skip_bias_add ? output + bias : output;
}

std::optional<torch::Tensor> LinearImpl::optional_bias() const {
  return bias.defined() ? std::optional(bias) : std::nullopt;
}

// Ranks' columns come rank by rank; a fused projection's segments are put back in their order.
torch::Tensor LinearImpl::gather_columns(const torch::Tensor& output) const {
  const torch::Tensor gathered = gather_from_group(output, *group_, -1, sizes_along(weight_placement_, *group_));
  if (weight_placement_.segments.size() == 1) return gathered;
  std::vector<torch::Tensor> ordered;
  for (std::size_t segment = 0; segment < weight_placement_.segments.size(); ++segment) {
    std::int64_t offset = 0;
    for (int rank = 0; rank < group_->size(); ++rank) {
      const auto ranges = weight_placement_.ranges(rank);
      std::int64_t before = 0;
      for (std::size_t i = 0; i < segment; ++i) before += ranges[i].size();
      ordered.push_back(gathered.narrow(-1, offset + before, ranges[segment].size()));
      offset += weight_placement_.local_size(rank);
    }
  }
  return torch::cat(ordered, -1);
}

Placements LinearImpl::shard(const ShardStyle& style, ProcessGroup& group) {
  if (std::holds_alternative<Vocab>(style))
    throw ConfigError({"", "a Linear can't be split as Vocab{}", "Column{} or Row{}", ""});
  Placements placements;
  if (const auto* column = std::get_if<Column>(&style)) {
    weight_placement_ = gantry::shard(0, options.out_features(), group.size(), column->segments, column->unit);
    placements["weight"] = weight_placement_;
    if (bias.defined()) placements["bias"] = weight_placement_;
  } else {
    weight_placement_ = gantry::shard(1, options.in_features(), group.size(), 1, std::get<Row>(style).unit);
    placements["weight"] = weight_placement_;
  }
  style_ = style;
  group_ = &group;
  shard_tensor(weight, weight_placement_, group.rank());
  if (placements.contains("bias")) shard_tensor(bias, weight_placement_, group.rank());
  return placements;
}

void LinearImpl::set_gather_output(bool gather) {
  if (style_)
    if (auto* column = std::get_if<Column>(&*style_)) column->gather_output = gather;
}

}  // namespace gantry::nn
