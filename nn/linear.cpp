#include "gantry/nn/linear.h"

#include <fmt/format.h>

#include "gantry/core/error.h"
#include "gantry/core/sharding/adapter_split.h"
#include "gantry/nn/autograd_collectives.h"
#include "gantry/nn/linear_function.h"
#include "gantry/nn/magnitudes.h"
#include "gantry/nn/output_observer.h"
#include "gantry/nn/overlap.h"
#include "gantry/nn/row_pieces.h"
#include "gantry/nn/summed_linear.h"
#include "gantry/nn/trained_rows.h"
#include "gantry/tensors/deferred_init.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/principal_factors.h"
#include "gantry/tensors/quantized_weight.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry::nn {
namespace {

Sizes sizes_along(const ShardSpec& placement, const ProcessGroup& group) {
  Sizes sizes;
  for (int rank = 0; rank < group.size(); ++rank) sizes.push_back(placement.local_size(rank));
  return sizes;
}

const Shard* sharded(const std::optional<Layout>& layout) { return layout ? std::get_if<Shard>(&*layout) : nullptr; }

void refuse_partial(const std::optional<Layout>& layout, const char* which) {
  if (layout && std::holds_alternative<Partial>(*layout))
    throw ConfigError({"", fmt::format("the {} cannot be Partial", which), "Replicate or Shard", ""});
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

void LinearImpl::add_adapter(const AdapterOptions& adapter) {
  if (has_adapter() || style_)
    throw UsageError({"adapter",
                      has_adapter() ? "the layer already has an adapter" : "the layer has already been sharded",
                      "one adapter, added before the model is boosted", ""});
  const DeferredInit deferred;
  lora_a = register_parameter(kAdapterA, torch::empty({adapter.rank, options.in_features()}, weight.options()));
  lora_b = register_parameter(kAdapterB, torch::empty({options.out_features(), adapter.rank}, weight.options()));
  if (adapter.dora)
    lora_magnitude = register_parameter(kAdapterMagnitude, torch::empty({options.out_features()}, weight.options()));
  start_adapter(adapter);
  adapter_scale_ = adapter.scale;
  if (adapter.dropout > 0) adapter_dropout_ = register_module("lora_dropout", Dropout(adapter.dropout));
}

Placements LinearImpl::adapter_splits() const {
  if (!style_) return {};
  return split_of_adapter(*style_, {1, options.in_features()}, {options.out_features(), 1}, axes_);
}

LayerAdapterPlaces LinearImpl::adapter_places(const AdapterOptions& adapter, const std::string&) const {
  const Placements splits = adapter_splits();
  LayerAdapterPlaces places{place_of_factor(kAdapterA, {adapter.rank, options.in_features()}, splits),
                            place_of_factor(kAdapterB, {options.out_features(), adapter.rank}, splits),
                            {}};
  if (adapter.dora) places.magnitude = place_of_factor(kAdapterMagnitude, {options.out_features()}, splits);
  return places;
}

void LinearImpl::use_adapter(const LayerAdapter& adapter, const std::string&) {
  lora_a = adapter.a;
  lora_b = adapter.b;
  lora_magnitude = adapter.magnitude;
  adapter_scale_ = adapter.scale;
}

void LinearImpl::start_adapter(const AdapterOptions& adapter) {
  const torch::NoGradGuard no_grad;
  awaits_base_ = (adapter.dora || adapter.pissa) && is_deferred(weight);
  if (adapter.gaussian)
    torch::nn::init::normal_(lora_a, 0, 1 / static_cast<double>(adapter.rank));
  else
    torch::nn::init::kaiming_uniform_(lora_a, std::sqrt(5.0));
  torch::nn::init::zeros_(lora_b);
  if (adapter.dora && awaits_base_) lora_magnitude.fill_(1);
  if (awaits_base_) return;
  if (adapter.dora) lora_magnitude.copy_(torch::linalg_vector_norm(weight, 2, {1}));
  if (!adapter.pissa) return;
  const auto [a, b] = adapter_factors(weight, adapter.rank, adapter.scale, adapter.power_steps, weight.scalar_type());
  lora_a.copy_(a);
  lora_b.copy_(b);
  weight.copy_(weight.to(torch::kFloat64) - adapter.scale * torch::mm(b, a).to(weight.device()));
}

void LinearImpl::quantize(WeightCode code) {
  if (encoding_ || style_)
    throw UsageError({"quantize", encoding_ ? "the layer is already quantised" : "the layer has already been sharded",
                      "one call, before the model is boosted", ""});
  encoding_ = row_encoding(code, options.in_features(), {{0, options.in_features()}});
  weight.set_requires_grad(false);
}

torch::Tensor LinearImpl::weight_values(torch::ScalarType type) const {
  return encoding_ ? unpack_records(*encoding_, weight.detach(), type) : weight;
}

void LinearImpl::tie_weight(const torch::Tensor& other) {
  if (other.sizes() != weight.sizes())
    throw ConfigError({"tied weight",
                       "the shapes of " + gantry::describe(other) + " and " + gantry::describe(weight) + " differ",
                       "equal shapes", ""});
  weight = parameters_["weight"] = other;
}

void LinearImpl::share_tokens(std::shared_ptr<TrainedRows> tokens) {
  if (encoding_ || has_adapter() || style_)
    throw UsageError({"share_tokens", "the output layer is quantized, adapted or sharded", "an ordinary layer",
                      "call it before any of these"});
  register_parameter(kTrainedTokens, tokens->values);
  trained_tokens_ = std::move(tokens);
}

LinearInput LinearImpl::input_layout() const {
  const Column* column = style_ ? std::get_if<Column>(&*style_) : nullptr;
  if (!column) return {};
  const Shard* shard = sharded(column->input);
  return {.group = group_, .gather_dim = shard ? std::optional(shard->dim) : std::nullopt};
}

// Outside of the tensor-parallel region of a sequence-parallel layer, a bias is added to this rank's tokens
// only, so its gradient is partial.
torch::Tensor LinearImpl::used_bias() const {
  if (!bias.defined() || !style_) return bias;
  if (const auto* row = std::get_if<Row>(&*style_))
    return sharded(row->output) && row->gradient_sum == GradientSum::kInBackward ? copy_to_group(bias, *group_) : bias;
  if (const auto* sequence = std::get_if<SequenceParallel>(&*style_))
    return sequence->gradient_sum == GradientSum::kInBackward ? copy_to_group(bias, *group_) : bias;
  const auto* column = std::get_if<Column>(&*style_);
  return column && column->gradient_sum == GradientSum::kInBackward
             ? with_summed_overlaps(bias, weight_placement_, *group_)
             : bias;
}

LinearWeight LinearImpl::used_weight() const {
  torch::Tensor used = weight;
  if (style_ && weight.requires_grad()) {
    const auto* column = std::get_if<Column>(&*style_);
    const auto* sequence = std::get_if<SequenceParallel>(&*style_);
    if (column && column->gradient_sum == GradientSum::kInBackward)
      used = with_summed_overlaps(weight, weight_placement_, *group_);
    if (sequence && sequence->gradient_sum == GradientSum::kInBackward) used = copy_to_group(weight, *group_);
  }
  return {used, used_bias(), encoding_};
}

// If the other factor is sharded, the gradient of a full factor is partial.
torch::Tensor LinearImpl::used_lora_a() const {
  const auto* column = style_ ? std::get_if<Column>(&*style_) : nullptr;
  const auto* sequence = style_ ? std::get_if<SequenceParallel>(&*style_) : nullptr;
  const bool is_part = (column && column->gradient_sum == GradientSum::kInBackward) ||
                       (sequence && sequence->gradient_sum == GradientSum::kInBackward);
  return is_part ? copy_to_group(lora_a, *group_) : lora_a;
}

// The same for B and the magnitudes, which have a row for each output.
torch::Tensor LinearImpl::used_by_rows(const torch::Tensor& factor) const {
  if (!style_) return factor;
  const auto* row = std::get_if<Row>(&*style_);
  const auto* sequence = std::get_if<SequenceParallel>(&*style_);
  const auto* column = std::get_if<Column>(&*style_);
  if ((row && row->gradient_sum == GradientSum::kInBackward) ||
      (sequence && sequence->gradient_sum == GradientSum::kInBackward))
    return copy_to_group(factor, *group_);
  return column && column->gradient_sum == GradientSum::kInBackward
             ? with_summed_overlaps(factor, weight_placement_, *group_)
             : factor;
}

bool LinearImpl::has_factors() const {
  if (encoding_ || lora_magnitude.defined() || trained_tokens_ || !weight.is_leaf()) return false;
  const bool is_by_rows = !style_ || std::holds_alternative<Column>(*style_);
  return is_by_rows && weight_placement_.segments.size() <= 1 && !weight_placement_.overlaps();
}

LinearImpl::Factors LinearImpl::factors(const torch::Tensor& input) {
  Factors factors{{entered(input)}, {weight}, bias};
  if (!has_adapter()) return factors;
  // Without dropout, A has the same input as the weight.
  const torch::Tensor narrow = drops_input_of_adapter()
                                   ? linear(adapter_dropout_(input), {{used_lora_a(), {}}}, input_layout()).front()
                                   : linear(factors.inputs.front(), {{used_lora_a(), {}}}, {}).front();
  factors.inputs.push_back(narrow * adapter_scale_);
  factors.weights.push_back(lora_b);
  return factors;
}

// The input of a column-sharded weight.
torch::Tensor LinearImpl::entered(const torch::Tensor& input) const {
  const auto [group, gather_dim] = input_layout();
  if (!group || group->size() == 1) return input;
  if (!gather_dim) return copy_to_group(input, *group);
  const int dim = *gather_dim < 0 ? *gather_dim + static_cast<int>(input.dim()) : *gather_dim;
  return gather_to_group(input, *group, dim, shard_sizes(input.size(dim), *group));
}

bool LinearImpl::drops_input_of_adapter() const { return adapter_dropout_ && is_training(); }

// The weight, and A or the trained tokens if they have the same input as the weight. The bias of a row-split
// layer is added after the reduction, and the bias of a layer with magnitudes after these.
std::vector<LinearWeight> LinearImpl::readers_of_input() const {
  std::vector<LinearWeight> readers = {is_row_split() ? LinearWeight{weight, {}, encoding_} : used_weight()};
  if (lora_magnitude.defined()) readers.front().bias = torch::Tensor();
  if (has_adapter() && !drops_input_of_adapter()) readers.push_back({used_lora_a(), {}});
  if (trained_tokens_) {
    const torch::Tensor& values = trained_tokens_->values;
    readers.push_back({weight_placement_.sharded() ? copy_to_group(values, *group_) : values, {}});
  }
  return readers;
}

// `outputs`: the outputs of readers_of_input().
torch::Tensor LinearImpl::with_adapter(const torch::Tensor* outputs, const torch::Tensor& input) {
  if (trained_tokens_) return with_tokens(outputs);
  if (!has_adapter()) return outputs[0];
  if (lora_magnitude.defined()) return with_magnitudes(outputs, input);
  const torch::Tensor narrow = drops_input_of_adapter()
                                   ? linear(adapter_dropout_(input), {{used_lora_a(), {}}}, input_layout()).front()
                                   : outputs[1];
  return outputs[0] + linear(narrow * adapter_scale_, {{used_by_rows(lora_b), {}}}, {}).front();
}

// Each rank replaces the columns that it holds.
torch::Tensor LinearImpl::with_tokens(const torch::Tensor* outputs) const {
  const Range own =
      weight_placement_.sharded() ? weight_placement_.ranges(group_->rank()).front() : Range{0, options.out_features()};
  const auto& [positions, columns, places] = trained_tokens_->held(own);
  torch::Tensor replaced = outputs[1].index_select(-1, places);
  if (bias.defined()) replaced = replaced + used_bias().index_select(0, columns);
  return outputs[0].index_copy(-1, columns, replaced);
}

// As in PEFT, the base output is computed without dropout, and all changes of it from the input after
// dropout.
torch::Tensor LinearImpl::with_magnitudes(const torch::Tensor* outputs, const torch::Tensor& input) {
  const bool drops = drops_input_of_adapter();
  std::vector<torch::Tensor> of_dropped;
  if (drops)
    of_dropped =
        linear(adapter_dropout_(input),
               {{is_row_split() ? weight : used_weight().weight, {}, encoding_}, {used_lora_a(), {}}}, input_layout());
  const torch::Tensor& base = drops ? of_dropped[0] : outputs[0];
  const torch::Tensor& narrow = drops ? of_dropped[1] : outputs[1];
  const torch::Tensor added = linear(narrow * adapter_scale_, {{used_by_rows(lora_b), {}}}, {}).front();
  const LowRank change{lora_a.detach(), lora_b.detach(), adapter_scale_};
  const torch::Tensor norms = row_norms(weight_values(base.scalar_type()).detach(), change,
                                        is_row_split() && weight_placement_.sharded() ? group_ : nullptr);
  const torch::Tensor ratio = magnitude_ratio(used_by_rows(lora_magnitude), norms).to(base.scalar_type());
  const torch::Tensor output = drops ? outputs[0] + (ratio - 1) * base + ratio * added : ratio * (base + added);
  return bias.defined() && !is_row_split() ? output + used_bias() : output;
}

torch::Tensor LinearImpl::forward(const torch::Tensor& input) {
  if (const Row* row = style_ ? std::get_if<Row>(&*style_) : nullptr) {
    torch::Tensor output = forward_row(*row, input);
    return row->reduce_output ? observed(*this, std::move(output)) : output;
  }
  const torch::Tensor output = with_adapter(linear(input, readers_of_input(), input_layout()).data(), input);
  const auto* column = style_ ? std::get_if<Column>(&*style_) : nullptr;
  return observed(*this, column && column->gather_output ? gather_columns(output) : output);
}

torch::Tensor LinearImpl::forward_row(const Row& row, const torch::Tensor& input) {
  const torch::Tensor part =
      row.input_is_parallel ? input : split_to_group(input, *group_, -1, sizes_along(weight_placement_, *group_));
  const Shard* shard = sharded(row.output);
  const std::optional<int> dim = shard ? std::optional(shard->dim) : std::nullopt;
  torch::Tensor output;
  if (row.reduce_output && !has_adapter() && !encoding_ && goes_in_pieces(part, dim, *group_)) {
    output = summed_linear(part, weight, *group_, dim);
  } else {
    const torch::Tensor partial = with_adapter(linear(part, readers_of_input(), {}).data(), part);
    if (!row.reduce_output) return partial;
    output = dim ? reduce_scatter_to_group(partial, *group_, *dim, partition_sizes(partial.size(*dim), *group_))
                 : reduce_from_group(partial, *group_);
  }
  return bias.defined() && !row.skip_bias_add ? output + used_bias() : output;
}

std::vector<torch::Tensor> together(const torch::Tensor& input, const std::vector<Linear>& layers) {
  std::vector<LinearWeight> weights;
  std::vector<std::size_t> first_of_layer = {0};
  bool gathers = false, same = true;
  for (const auto& layer : layers) {
    const auto* column = layer->style_ ? std::get_if<Column>(&*layer->style_) : nullptr;
    const auto* row = layer->style_ ? std::get_if<Row>(&*layer->style_) : nullptr;
    const auto* first = layers.front()->style_ ? std::get_if<Column>(&*layers.front()->style_) : nullptr;
    gathers = gathers || (column && column->gather_output);
    same = same && !row && (column != nullptr) == (first != nullptr) && (!column || column->input == first->input);
    for (auto& reader : layer->readers_of_input()) weights.push_back(std::move(reader));
    first_of_layer.push_back(weights.size());
  }
  std::vector<torch::Tensor> outputs;
  if (weights.size() > kMostWeights && layers.size() > 1) {
    const auto middle = layers.begin() + static_cast<std::ptrdiff_t>(layers.size() / 2);
    outputs = together(input, {layers.begin(), middle});
    for (torch::Tensor& output : together(input, {middle, layers.end()})) outputs.push_back(std::move(output));
    return outputs;
  }
  if (!same || gathers) {
    for (auto layer : layers) outputs.push_back(layer(input));
    return outputs;
  }
  const auto made = linear(input, weights, layers.front()->input_layout());
  for (std::size_t i = 0; i < layers.size(); ++i) {
    Linear layer = layers[i];
    outputs.push_back(observed(*layer, layer->with_adapter(&made[first_of_layer[i]], input)));
  }
  return outputs;
}

// The gathered columns are in rank order. The segments of a fused projection are put back in their order,
// with each unit from the first rank that has it.
torch::Tensor LinearImpl::gather_columns(const torch::Tensor& output) const {
  const torch::Tensor gathered = gather_from_group(output, *group_, -1, sizes_along(weight_placement_, *group_));
  if (weight_placement_.segments.size() == 1 && !weight_placement_.overlaps()) return gathered;
  std::vector<torch::Tensor> ordered;
  for (std::size_t segment = 0; segment < weight_placement_.segments.size(); ++segment) {
    std::int64_t offset = 0;
    for (int rank = 0; rank < group_->size(); ++rank) {
      const auto ranges = weight_placement_.ranges(rank), owned = weight_placement_.owned(rank);
      std::int64_t before = 0;
      for (std::size_t i = 0; i < segment; ++i) before += ranges[i].size();
      ordered.push_back(
          gathered.narrow(-1, offset + before + owned[segment].begin - ranges[segment].begin, owned[segment].size()));
      offset += weight_placement_.local_size(rank);
    }
  }
  return torch::cat(ordered, -1);
}

Placements LinearImpl::shard(const ShardStyle& style, const ShardAxes& axes) {
  group_ = &axes.group();
  style_ = style;
  axes_ = axes.axes();
  const auto* column = std::get_if<Column>(&style);
  const auto* row = std::get_if<Row>(&style);
  if (std::holds_alternative<Vocab>(style) || std::holds_alternative<gantry::PrepareInput>(style))
    refuse_style("a Linear", style, "Column{} or Row{}");
  if (column) refuse_partial(column->input, "input");
  if (row) refuse_partial(row->output, "output");
  std::map<std::string, Shape> shapes{{"weight", {options.out_features(), options.in_features()}}};
  if (bias.defined()) shapes["bias"] = {options.out_features()};
  Placements placements = split_parameters(shapes, style, axes);
  weight_placement_ = shard_of(placements, "weight");
  if (encoding_ && weight_placement_.dim == 1)
    encoding_ = row_encoding(encoding_->code, options.in_features(), weight_placement_.ranges(group_->rank()));
  if (has_adapter()) {
    // The adapter's rank dimension is never sharded. A stage without the layer has released the factors.
    Placements adapter = adapter_splits();
    if (!lora_magnitude.defined()) adapter.erase(kAdapterMagnitude);
    placements.merge(adapter);
    if (adapter_dropout_) shard_dropout(style, axes);
  }
  if (column && column->gather_output && weight_placement_.overlaps())
    throw ConfigError({"", "the output cannot be gathered, because ranks share heads", "gather_output false", ""});
  shard_parameters(*this, placements, axes);
  return placements;
}

// Shards the dropout in the same way as the input of A.
void LinearImpl::shard_dropout(const ShardStyle& style, const ShardAxes& axes) {
  if (const auto* column = std::get_if<Column>(&style)) {
    if (const Shard* shard = sharded(column->input)) adapter_dropout_->shard(SequenceParallel{.dim = shard->dim}, axes);
  } else if (std::holds_alternative<Row>(style)) {
    if (!weight_placement_.sharded()) return;  // one rank
    adapter_dropout_->hold_features(weight_placement_.ranges(group_->rank()).front().begin, options.in_features());
  } else if (std::holds_alternative<SequenceParallel>(style)) {
    adapter_dropout_->shard(style, axes);
  }
}

void LinearImpl::set_gather_output(bool gather) {
  if (style_)
    if (auto* column = std::get_if<Column>(&*style_)) column->gather_output = gather;
}

}  // namespace gantry::nn
