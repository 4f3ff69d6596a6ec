#include "gantry/nn/ssd_heads.h"

#include "gantry/nn/depthwise_convolution.h"
#include "gantry/nn/mixers/ssd.h"
#include "gantry/nn/step_bias.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::nn {
namespace {

constexpr const char* kState = "ssd";  // in LayerState: [samples, heads, size, state]

}  // namespace

SsdHeadsImpl::SsdHeadsImpl(const SsdHeadsOptions& options) : options_(options), held_{0, options.heads} {
  a_log = register_parameter("A_log", torch::arange(1, options.heads + 1, torch::kFloat32).log());
  d = register_parameter("D", torch::ones({options.heads}));
  dt_bias = register_parameter("dt_bias",
                               initial_step_bias(options.heads, options.first_initial_step, options.last_initial_step));
}

Placements SsdHeadsImpl::shard(const ShardStyle& style, const ShardAxes& axes) {
  if (!std::holds_alternative<Column>(style)) refuse_style("SsdHeads", style, "Column{}");
  const Shape shape = {options_.heads};
  const Placements placements = split_parameters({{"A_log", shape}, {"D", shape}, {"dt_bias", shape}}, style, axes);
  if (const ShardSpec heads = shard_of(placements, "A_log"); heads.sharded())
    held_ = heads.ranges(axes.rank(), options_.heads).front();
  shard_parameters(*this, placements, axes);
  return placements;
}

std::int64_t SsdHeadsImpl::local_groups() const { return group_of(held_.end - 1) - group_of(held_.begin) + 1; }

torch::Tensor SsdHeadsImpl::in_groups(const torch::Tensor& features) const {
  const std::int64_t heads = local_heads(), groups = local_groups();
  const torch::Tensor by_group = features.view({features.size(0), features.size(1), groups, options_.state});
  std::vector<std::int64_t> read;
  bool is_even = heads % groups == 0;
  for (std::int64_t head = 0; head < heads; ++head) {
    read.push_back(group_of(held_.begin + head) - group_of(held_.begin));
    is_even = is_even && read.back() == head / (heads / groups);
  }
  if (is_even) return by_group;
  return by_group.index_select(2, torch::tensor(read, torch::kInt64).to(features.device()));
}

torch::Tensor SsdHeadsImpl::forward(const torch::Tensor& x, const torch::Tensor& b, const torch::Tensor& c,
                                    const torch::Tensor& dt, const TokenContext& tokens, LayerState* state) {
  const torch::ScalarType wide = at::promote_types(x.scalar_type(), torch::kFloat32);
  const torch::Tensor steps = torch::softplus(dt.to(wide) + dt_bias.to(wide));
  const torch::Tensor counted = without_padding(x, tokens);
  const SsdInputs inputs{.x = counted.view({x.size(0), x.size(1), local_heads(), options_.head_size}),
                         .dt = steps.clamp(options_.least_step, options_.largest_step),
                         .a = -a_log.to(wide).exp(),
                         .b = in_groups(b),
                         .c = in_groups(c),
                         .d = d.to(wide)};
  const torch::Tensor earlier = state ? state->get(kState) : torch::Tensor();
  const RecurrenceResult made =
      earlier.defined() && x.size(1) == 1 ? ssd_step(inputs, earlier) : ssd(inputs, earlier, tokens.documents);
  if (state) state->set(kState, made.state);
  return made.out.reshape(x.sizes());
}

}  // namespace gantry::nn
