#include "gantry/nn/experts.h"

#include <numeric>

#include "gantry/core/error.h"
#include "gantry/core/sharding/adapter_split.h"
#include "gantry/nn/activation.h"
#include "gantry/nn/autograd_collectives.h"
#include "gantry/nn/expert_exchange.h"
#include "gantry/nn/grouped_linear.h"
#include "gantry/nn/linear.h"
#include "gantry/nn/output_observer.h"
#include "gantry/nn/prepare_input.h"
#include "gantry/tensors/deferred_init.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::nn {
namespace {

const Shard* shards_at_border(const Expert& style) {
  return style.border ? std::get_if<Shard>(&*style.border) : nullptr;
}

}  // namespace

ExpertsImpl::ExpertsImpl(ExpertsOptions given) : options(std::move(given)) {
  const auto shapes = expert_parameters(options.shape);
  const auto make = [&](const std::string& name) { return register_parameter(name, torch::empty(shapes.at(name))); };
  const std::string input = options.shape.input_stack(), output = kDownStack;
  gate_up_proj = make(input);
  down_proj = make(output);
  for (const auto& weight : {gate_up_proj, down_proj}) torch::nn::init::normal_(weight, 0, 0.02);
  if (!options.shape.bias) return;
  gate_up_proj_bias = make(input + "_bias");
  down_proj_bias = make(output + "_bias");
  for (const auto& bias : {gate_up_proj_bias, down_proj_bias}) torch::nn::init::zeros_(bias);
}

void ExpertsImpl::add_adapter(const std::string& parameter, const AdapterOptions& adapter) {
  if (adapters_.contains(parameter) || is_sharded_)
    throw UsageError({"adapter",
                      is_sharded_ ? "the experts have already been sharded" : "the experts already have this adapter",
                      "one adapter, added before the model is boosted", ""});
  const auto [a, b, none] = full_adapter(adapter, parameter, {});
  const double bound = 1 / std::sqrt(static_cast<double>(a.global_shape[2]));
  const DeferredInit deferred;
  LayerAdapter made;
  made.a = register_parameter(a.name, torch::empty(a.global_shape, gate_up_proj.options()));
  made.b = register_parameter(b.name, torch::empty(b.global_shape, gate_up_proj.options()));
  if (adapter.gaussian)
    torch::nn::init::normal_(made.a, 0, 1 / static_cast<double>(adapter.rank));
  else
    torch::nn::init::uniform_(made.a, -bound, bound);
  torch::nn::init::zeros_(made.b);
  made.scale = adapter.scale;
  adapters_[parameter] = made;
}

LayerAdapterPlaces ExpertsImpl::full_adapter(const AdapterOptions& adapter, const std::string& stack,
                                             const Placements& splits) const {
  const Shape shape = expert_parameters(options.shape).at(stack);
  const bool input_is_first = options.shape.input_is_first();
  const std::int64_t in = shape[input_is_first ? 1 : 2], out = shape[input_is_first ? 2 : 1];
  return {place_of_factor(stack + kStackAdapterA, {shape[0], adapter.rank, in}, splits),
          place_of_factor(stack + kStackAdapterB, {shape[0], out, adapter.rank}, splits),
          {}};
}

LayerAdapterPlaces ExpertsImpl::adapter_places(const AdapterOptions& adapter, const std::string& stack) const {
  const auto splits = is_sharded_ ? split_of_stack_adapter(stack, style_, options.shape, axes_) : Placements();
  return full_adapter(adapter, stack, splits);
}

void ExpertsImpl::use_adapter(const LayerAdapter& adapter, const std::string& stack) {
  adapters_.erase(stack);
  if (adapter.a.defined()) adapters_.emplace(stack, adapter);
}

void ExpertsImpl::quantize(WeightCode code) {
  if (!encodings_.empty() || is_sharded_)
    throw UsageError({"quantize",
                      is_sharded_ ? "the experts have already been sharded" : "the experts are already quantized",
                      "one call, before the model is boosted", ""});
  ExpertShape stored = options.shape;
  stored.output_is_first = code == WeightCode::kMxfp4;
  const auto shapes = expert_parameters(stored);
  const DeferredInit deferred;
  for (torch::Tensor* weight : {&gate_up_proj, &down_proj}) {
    const std::string name = weight == &down_proj ? kDownStack : options.shape.input_stack();
    const std::int64_t columns = shapes.at(name).back();
    encodings_.emplace(name, row_encoding(code, columns, {{0, columns}}));
    weight->set_requires_grad(false);
    if (stored.input_is_first() == options.shape.input_is_first()) continue;
    const torch::Tensor turned = torch::empty(shapes.at(name), weight->options());
    release_tensor(*weight);
    weight->set_data(turned);
  }
}

std::optional<RowEncoding> ExpertsImpl::encoding(const std::string& parameter) const {
  const auto found = encodings_.find(parameter);
  return found == encodings_.end() ? std::nullopt : std::optional(found->second);
}

ExpertShape ExpertsImpl::used_shape() const {
  ExpertShape shape = options.shape;
  shape.output_is_first = !encodings_.empty() && encodings_.begin()->second.code == WeightCode::kMxfp4;
  return shape;
}

Placements ExpertsImpl::shard(const ShardStyle& style, const ShardAxes& axes) {
  is_sharded_ = true;
  const auto* expert = std::get_if<Expert>(&style);
  if (!expert) refuse_style("Experts", style, "Expert{}");
  if (expert->border && std::holds_alternative<Partial>(*expert->border))
    throw ConfigError({"", "the border cannot be Partial", "Replicate or Shard", ""});
  style_ = *expert;
  axes_ = axes.axes();
  if (axes.ranks() > 1) group_ = &axes.group();
  Placements placements = split_of(style_, used_shape(), axes.axes());
  for (const auto& [parameter, adapter] : adapters_)
    placements.merge(split_of_stack_adapter(parameter, style_, options.shape, axes_));
  shard_parameters(*this, placements, axes);
  for (auto& [parameter, encoding] : encodings_)
    for (const ShardSpec& step : placements.at(parameter).shards)
      if (step.dim == 2)
        encoding = row_encoding(encoding.code, encoding.columns, step.ranges(axes.rank(), encoding.columns));
  if (style_.partitioned) held_ = partition(options.shape.experts, 1, axes.ranks());
  return placements;
}

// If ranks have parts of each expert's width, the gradients of the input are partial.
torch::Tensor ExpertsImpl::entering(const torch::Tensor& part) const {
  return group_ ? enter_split(part, *group_, style_.border) : part;
}

torch::Tensor ExpertsImpl::leaving(const torch::Tensor& partial) const {
  if (!group_) return partial;
  const Shard* shard = shards_at_border(style_);
  if (!shard) return reduce_from_group(partial, *group_);
  return reduce_scatter_to_group(partial, *group_, shard->dim, partition_sizes(partial.size(shard->dim), *group_));
}

// The bias is added once, by the first rank.
torch::Tensor ExpertsImpl::output_bias() const {
  if (!group_ || !down_proj_bias.defined()) return down_proj_bias;
  const torch::Tensor used =
      style_.gradient_sum == GradientSum::kInBackward ? copy_to_group(down_proj_bias, *group_) : down_proj_bias;
  return used * (group_->rank() == 0 ? 1.0 : 0.0);
}

torch::Tensor ExpertsImpl::activated(const torch::Tensor& gate_up) const {
  if (!options.shape.gated) return activate(gate_up, options.activation);
  const bool pairs = options.shape.interleaved;
  if (!pairs && options.limit == 0) return gated_halves(gate_up, options.activation);
  const auto parts = pairs ? gate_up.view({gate_up.size(0), gate_up.size(1) / 2, 2}).unbind(-1) : gate_up.chunk(2, -1);
  if (options.limit == 0) return gated(parts[0], parts[1], options.activation);
  const torch::Tensor gate = parts[0].clamp_max(options.limit), up = parts[1].clamp(-options.limit, options.limit);
  return (up + 1) * (gate * torch::sigmoid(gate * 1.702));
}

// The full factor next to a sharded one has partial gradients.
torch::Tensor ExpertsImpl::projected(const torch::Tensor& rows, const std::string& parameter,
                                     const GroupedWeight& weight, const std::vector<std::int64_t>& counts) const {
  const torch::Tensor made = grouped_linear(rows, weight, counts);
  const auto adapter = adapters_.find(parameter);
  if (adapter == adapters_.end()) return made;
  const auto used = [&](const torch::Tensor& factor, bool is_full) {
    const bool sums = is_full && group_ && !style_.partitioned && style_.gradient_sum == GradientSum::kInBackward;
    return sums ? copy_to_group(factor, *group_) : factor;
  };
  const bool by_columns = parameter == options.shape.input_stack();
  const torch::Tensor narrow = grouped_linear(rows, {used(adapter->second.a, by_columns), {}}, counts);
  return made + grouped_linear(narrow * adapter->second.scale, {used(adapter->second.b, !by_columns), {}}, counts);
}

torch::Tensor ExpertsImpl::computed(const torch::Tensor& rows, const torch::Tensor& bias,
                                    const std::vector<std::int64_t>& counts) {
  const bool input_is_first = used_shape().input_is_first();
  const std::string input = options.shape.input_stack();
  dropped_ -= std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  const torch::Tensor wide =
      activated(projected(rows, input, {gate_up_proj, gate_up_proj_bias, input_is_first, encoding(input)}, counts));
  return projected(wide, kDownStack, {down_proj, bias, input_is_first, encoding(kDownStack)}, counts);
}

// Rows by expert, multiplied by their weights if these apply to the experts' input.
torch::Tensor ExpertsImpl::input_rows(const torch::Tensor& tokens, const torch::Tensor& weights,
                                      const Dispatch& dispatch) const {
  const torch::Tensor rows = rows_by_expert(tokens.reshape({-1, tokens.size(-1)}), dispatch);
  if (!options.weights_input) return rows;
  return weighted_rows(rows, weights.reshape({-1, weights.size(-1)}).to(rows.scalar_type()), dispatch);
}

torch::Tensor ExpertsImpl::output_weights(const torch::Tensor& weights) const {
  return options.weights_input ? torch::ones_like(weights.detach()) : weights;
}

// The sums of the experts' rows for each token.
torch::Tensor ExpertsImpl::output_sums(const torch::Tensor& rows, const torch::Tensor& weights,
                                       const Dispatch& dispatch) const {
  const torch::Tensor of_outputs = output_weights(weights);
  return combined_rows(rows, of_outputs.reshape({-1, weights.size(-1)}).to(rows.scalar_type()), dispatch);
}

// Every rank computes all tokens with its part of every expert.
torch::Tensor ExpertsImpl::over_width(const torch::Tensor& tokens, const Routing& routing) {
  torch::Tensor ids = routing.ids;
  if (const Shard* shard = shards_at_border(style_); group_ && shard)
    ids = all_gather_along(*group_, ids, shard->dim, shard_sizes(ids.size(shard->dim), *group_));
  dropped_ += ids.numel();
  const torch::Tensor full = entering(tokens), weights = entering(routing.weights);
  const Dispatch dispatch = dispatch_by_expert(ids.reshape({-1, ids.size(-1)}), options.shape.experts);
  const torch::Tensor made = computed(input_rows(full, weights, dispatch), output_bias(), dispatch.counts);
  return leaving(output_sums(made, weights, dispatch).view(full.sizes()));
}

bool ExpertsImpl::travels() const {
  return style_.partitioned && group_ && style_.dispatch == ExpertDispatch::kAllToAll;
}

// Each rank computes the rows of its own experts, of all ranks' tokens.
std::shared_ptr<DispatchedExperts> ExpertsImpl::dispatch(const torch::Tensor& tokens, const Routing& routing) {
  const torch::Tensor ids = routing.ids.reshape({-1, routing.ids.size(-1)});
  dropped_ += ids.numel();
  Dispatch dispatch = dispatch_by_expert(ids, options.shape.experts);
  ExpertExchange exchange = agree_on_rows(*group_, dispatch.counts, held_, tokens.device());
  PendingTokens going = rows_to_experts(input_rows(tokens, routing.weights, dispatch), exchange);
  return std::make_shared<DispatchedExperts>(
      DispatchedExperts{std::move(dispatch), std::move(exchange), std::move(going), tokens.sizes().vec()});
}

void ExpertsImpl::compute(DispatchedExperts& dispatched) {
  const torch::Tensor made = computed(dispatched.rows.wait(), down_proj_bias, dispatched.exchange.counts);
  dispatched.rows = rows_from_experts(made, dispatched.exchange);
}

torch::Tensor ExpertsImpl::combine(DispatchedExperts& dispatched, const torch::Tensor& weights) {
  const torch::Tensor sums = output_sums(dispatched.rows.wait(), weights, dispatched.dispatch);
  return observed(*this, sums.view(dispatched.shape));
}

// The same with all tokens on every rank. The results of other ranks' experts are zero.
torch::Tensor ExpertsImpl::by_gathering(const torch::Tensor& tokens, const Routing& routing) {
  dropped_ += routing.ids.numel();
  const torch::Tensor flat = tokens.reshape({-1, tokens.size(-1)});
  const Sizes sizes = all_gather_numbers(*group_, flat.size(0));
  const torch::Tensor ids = all_gather_along(*group_, routing.ids.reshape({-1, routing.ids.size(-1)}), 0, sizes);
  const torch::Tensor weights =
      gather_to_group(routing.weights.reshape({-1, routing.weights.size(-1)}), *group_, 0, sizes);
  const Dispatch dispatch = dispatch_by_expert(ids, options.shape.experts);
  const Range mine = held_[group_->rank()];
  const auto first = dispatch.counts.begin() + mine.begin, last = dispatch.counts.begin() + mine.end;
  const std::vector<std::int64_t> counts(first, last);
  const std::int64_t before = std::accumulate(dispatch.counts.begin(), first, std::int64_t{0}),
                     here = std::accumulate(first, last, std::int64_t{0});
  const torch::Tensor rows = input_rows(gather_to_group(flat, *group_, 0, sizes), weights, dispatch);
  const torch::Tensor made = computed(rows.narrow(0, before, here), down_proj_bias, counts);
  const auto none = [&](std::int64_t count) { return torch::zeros({count, made.size(1)}, made.options()); };
  const torch::Tensor all = torch::cat({none(before), made, none(rows.size(0) - before - here)});
  return reduce_scatter_to_group(output_sums(all, weights, dispatch), *group_, 0, sizes).view(tokens.sizes());
}

torch::Tensor ExpertsImpl::forward(const torch::Tensor& tokens, const Routing& routing) {
  if (travels()) {
    const auto dispatched = dispatch(tokens, routing);
    compute(*dispatched);
    return combine(*dispatched, routing.weights);
  }
  const bool gathers = style_.partitioned && group_;
  return observed(*this, gathers ? by_gathering(tokens, routing) : over_width(tokens, routing));
}

}  // namespace gantry::nn
