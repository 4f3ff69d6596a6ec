#include "gantry/nn/prepare_input.h"

#include "gantry/nn/autograd_collectives.h"

namespace gantry::nn {

torch::Tensor enter_split(const torch::Tensor& input, ProcessGroup& group, const std::optional<Layout>& layout) {
  const auto* shard = layout ? std::get_if<Shard>(&*layout) : nullptr;
  if (!shard) return copy_to_group(input, group);
  return gather_to_group(input, group, shard->dim, shard_sizes(input.size(shard->dim), group));
}

torch::Tensor EnterHeadsImpl::forward(const torch::Tensor& input) const {
  return group_ ? enter_split(input, *group_, input_) : input;
}

Placements EnterHeadsImpl::shard(const ShardStyle& style, const ShardAxes& axes) {
  const auto* column = std::get_if<Column>(&style);
  if (!column) refuse_style("EnterHeads", style, "Column{}");
  input_ = column->input;
  if (axes.ranks() > 1) group_ = &axes.group();
  return {};
}

}  // namespace gantry::nn
