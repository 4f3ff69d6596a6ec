#include "gantry/nn/embedding.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <numeric>

#include "gantry/core/error.h"
#include "gantry/core/sharding/adapter_split.h"
#include "gantry/nn/autograd_collectives.h"
#include "gantry/nn/forward.h"
#include "gantry/nn/linear.h"
#include "gantry/nn/linear_function.h"
#include "gantry/nn/output_observer.h"
#include "gantry/nn/trained_rows.h"
#include "gantry/nn/weight_gradient.h"
#include "gantry/tensors/deferred_init.h"
#include "gantry/tensors/host_copy.h"
#include "gantry/tensors/kernels/add_rows.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

// Rows of `weight` by flat index, zero where `outside` is true. The gradient is added to weight.grad row by
// row, in the order of the tokens, which is the same for every layout. The padding row gets none.
struct LookUp : torch::autograd::Function<LookUp> {
  static Variable forward(AutogradContext* context, const Variable& weight, const torch::Tensor& index,
                          const std::optional<torch::Tensor>& outside, std::int64_t padding) {
    context->save_for_backward({weight, index, outside.value_or(torch::Tensor())});
    context->saved_data["padding"] = padding;
    context->saved_data["store"] = reinterpret_cast<std::int64_t>(forward_now().weight_gradients);
    torch::Tensor rows = weight.index_select(0, index);
    if (outside) rows.masked_fill_(outside->unsqueeze(-1), 0);
    return rows;
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    torch::Tensor gradient = gradients[0];
    if (saved[2].defined()) gradient = gradient.masked_fill(saved[2].unsqueeze(-1), 0);
    if (const auto padding = context->saved_data["padding"].toInt(); padding >= 0)
      gradient = gradient.masked_fill((saved[1] == padding).unsqueeze(-1), 0);
    const auto add = [index = saved[1], gradient](torch::Tensor& into) { kernels::add_rows(into, index, gradient); };
    const auto make = [&] {
      torch::Tensor rows = torch::zeros_like(saved[0], at::MemoryFormat::Contiguous);
      kernels::add_rows(rows, saved[1], gradient);
      return rows;
    };
    auto* store = reinterpret_cast<WeightGradientStore*>(context->saved_data["store"].toInt());
    return {give_gradient(saved[0], store, add, make), {}, {}, {}};
  }
};

// Throws InputError for an index outside of [0, count). `given` is on the CPU.
void check_indices(const torch::Tensor& given, std::int64_t count) {
  const torch::Tensor indices = given.to(torch::kInt64).contiguous();
  const auto* begin = indices.const_data_ptr<std::int64_t>();
  const auto* end = begin + indices.numel();
  const auto* wrong = std::find_if(begin, end, [count](std::int64_t index) { return index < 0 || index >= count; });
  if (wrong == end) return;
  std::vector<std::int64_t> position;
  std::int64_t rest = wrong - begin;
  for (std::int64_t dim = indices.dim(); dim-- > 0; rest /= indices.size(dim))
    position.insert(position.begin(), rest % indices.size(dim));
  throw InputError(
      {"tokens",
       fmt::format("token {} at [{}] is outside the vocabulary of {} tokens", *wrong, fmt::join(position, ", "), count),
       fmt::format("0 to {}", count - 1), "check that the data and the model use the same tokenizer"});
}

void check_tokens(const torch::Tensor& indices, std::int64_t count) {
  if (const torch::Tensor known = on_host(indices); known.defined()) return check_indices(known, count);
  check_on_device((indices >= 0) & (indices < count), "a token on the device is outside the vocabulary");
}

}  // namespace

EmbeddingImpl::EmbeddingImpl(const torch::nn::EmbeddingOptions& options) : options(options) {
  weight = register_parameter("weight", torch::empty({options.num_embeddings(), options.embedding_dim()}));
  reset_parameters();
}

void EmbeddingImpl::reset_parameters() { torch::nn::init::normal_(weight); }

void EmbeddingImpl::add_adapter(const AdapterOptions& adapter) {
  if (has_adapter() || style_)
    throw UsageError({"adapter",
                      has_adapter() ? "the embedding already has an adapter" : "the embedding has already been sharded",
                      "one adapter, added before the model is boosted", ""});
  const DeferredInit deferred;
  lora_a = register_parameter(kTableAdapterA, torch::empty({options.num_embeddings(), adapter.rank}, weight.options()));
  lora_b = register_parameter(kTableAdapterB, torch::empty({options.embedding_dim(), adapter.rank}, weight.options()));
  torch::nn::init::zeros_(lora_a);
  torch::nn::init::normal_(lora_b);
  adapter_scale_ = adapter.scale;
}

Placements EmbeddingImpl::adapter_splits() const {
  if (!style_) return {};
  return split_of_table_adapter(*style_, {options.num_embeddings(), 1}, {options.embedding_dim(), 1}, axes_);
}

LayerAdapterPlaces EmbeddingImpl::adapter_places(const AdapterOptions& adapter, const std::string&) const {
  const Placements splits = adapter_splits();
  return {place_of_factor(kTableAdapterA, {options.num_embeddings(), adapter.rank}, splits),
          place_of_factor(kTableAdapterB, {options.embedding_dim(), adapter.rank}, splits),
          {}};
}

void EmbeddingImpl::use_adapter(const LayerAdapter& adapter, const std::string&) {
  lora_a = adapter.a;
  lora_b = adapter.b;
  adapter_scale_ = adapter.scale;
}

void EmbeddingImpl::train_tokens(const std::vector<std::int64_t>& tokens) {
  if (trained_tokens_ || has_adapter() || style_)
    throw UsageError(
        {"trained tokens",
         style_ ? "the embedding has already been sharded" : "the embedding already has an adapter or trained tokens",
         "one of the two, added before the model is boosted", ""});
  const DeferredInit deferred;
  const auto count = static_cast<std::int64_t>(tokens.size());
  torch::Tensor values =
      register_parameter(kTrainedTokens, torch::empty({count, options.embedding_dim()}, weight.options()));
  const torch::NoGradGuard no_grad;
  awaits_tokens_ = is_deferred(weight);
  if (awaits_tokens_)
    values.zero_();
  else
    values.copy_(weight.index_select(0, torch::tensor(tokens, torch::kInt64)));
  trained_tokens_ = std::make_shared<TrainedRows>(tokens, values);
}

// The rows of this rank's part of the table that indices select.
struct EmbeddingImpl::Rows {
  torch::Tensor index;                   // flat
  std::optional<torch::Tensor> outside;  // true for rows that this rank does not hold
  std::int64_t padding = -1;
};

EmbeddingImpl::Rows EmbeddingImpl::rows_of(const torch::Tensor& indices) const {
  Rows rows{indices.reshape({-1}).to(torch::kInt64), {}, options.padding_idx().value_or(-1)};
  if (!placement_.sharded()) return rows;
  const Range own = placement_.ranges(group_->rank()).front();
  rows.index = rows.index - own.begin;
  rows.outside = (rows.index < 0) | (rows.index >= own.size());
  rows.index = rows.index.masked_fill(*rows.outside, 0);
  rows.padding = rows.padding >= own.begin && rows.padding < own.end ? rows.padding - own.begin : -1;
  return rows;
}

torch::Tensor EmbeddingImpl::look_up(const torch::Tensor& indices, const torch::Tensor& table) const {
  const Rows rows = rows_of(indices);
  std::vector<std::int64_t> shape = indices.sizes().vec();
  shape.push_back(table.size(1));
  return LookUp::apply(table, rows.index, rows.outside, rows.padding).view(shape);
}

// `sums_full`: the gradients of full parameters are partial on this rank, and are all-reduced in the
// backward. `sums_sharded`: only the gradient of B is, because each rank has some rows of A.
torch::Tensor EmbeddingImpl::looked_up(const torch::Tensor& indices, bool sums_full, bool sums_sharded) const {
  const auto summed = [&](const torch::Tensor& parameter, bool sums) {
    return sums ? copy_to_group(parameter, *group_) : parameter;
  };
  const torch::Tensor rows = look_up(indices, summed(weight, sums_full));
  const bool sums_b = sums_full || sums_sharded;
  if (trained_tokens_) return with_tokens(indices, rows, summed(trained_tokens_->values, sums_b));
  if (!has_adapter()) return rows;
  const torch::Tensor narrow = look_up(indices, summed(lora_a, sums_full)) * adapter_scale_;
  return rows + linear(narrow, {{summed(lora_b, sums_b), {}}}, {}).front();
}

// `found`: the rows of the table. `values`: the rows of the trained tokens, which replace those of the table.
torch::Tensor EmbeddingImpl::with_tokens(const torch::Tensor& indices, const torch::Tensor& found,
                                         const torch::Tensor& values) const {
  const Rows rows = rows_of(indices);
  const Range own =
      placement_.sharded() ? placement_.ranges(group_->rank()).front() : Range{0, options.num_embeddings()};
  const torch::Tensor positions = trained_tokens_->held(own).positions.index_select(0, rows.index);
  const torch::Tensor others = rows.outside ? (positions < 0) | *rows.outside : positions < 0;
  const std::int64_t padding = trained_tokens_->position_of(options.padding_idx().value_or(-1));
  const torch::Tensor trained = LookUp::apply(values, positions.clamp_min(0), others, padding).view(found.sizes());
  std::vector<std::int64_t> shape = indices.sizes().vec();
  shape.push_back(1);
  return torch::where(others.view(shape), found, trained);
}

torch::Tensor EmbeddingImpl::own_rows(const torch::Tensor& indices) const {
  const torch::NoGradGuard no_graph;
  check_tokens(indices, options.num_embeddings());
  return look_up(indices, weight);
}

void EmbeddingImpl::add_to_own_rows(const torch::Tensor& indices, const torch::Tensor& gradient) {
  if (!weight.requires_grad()) return;
  const torch::NoGradGuard no_graph;
  const Rows rows = rows_of(indices);
  torch::Tensor given = gradient.reshape({-1, weight.size(1)});
  if (rows.outside) given = given.masked_fill(rows.outside->unsqueeze(-1), 0);
  if (rows.padding >= 0) given = given.masked_fill((rows.index == rows.padding).unsqueeze(-1), 0);
  kernels::add_rows(gradient_of(weight), rows.index, given);
}

torch::Tensor EmbeddingImpl::forward(const torch::Tensor& indices) {
  if (!at::isIntegralType(indices.scalar_type(), /*includeBool=*/false))
    throw InputError({"tokens", "the indices are " + describe(indices), "integers", "pass token ids"});
  check_tokens(indices, options.num_embeddings());
  if (const auto* vocab = style_ ? std::get_if<Vocab>(&*style_) : nullptr)
    return observed(*this, redistribute(looked_up(indices, false, placement_.sharded()), *group_, Partial{},
                                        vocab->output.value_or(Replicate{})));
  const auto* sequence = style_ ? std::get_if<SequenceParallel>(&*style_) : nullptr;
  if (!sequence) return observed(*this, looked_up(indices, false, false));
  const Sizes sizes = partition_sizes(indices.size(sequence->dim), *group_);
  const auto begin = std::accumulate(sizes.begin(), sizes.begin() + group_->rank(), std::int64_t{0});
  const bool sums = sequence->gradient_sum == GradientSum::kInBackward;
  return observed(*this, looked_up(indices.narrow(sequence->dim, begin, sizes[group_->rank()]), sums, false));
}

Placements EmbeddingImpl::shard(const ShardStyle& style, const ShardAxes& axes) {
  group_ = &axes.group();
  style_ = style;
  axes_ = axes.axes();
  const auto* vocab = std::get_if<Vocab>(&style);
  if (!vocab && !std::holds_alternative<FullSequence>(style) && !std::holds_alternative<SequenceParallel>(style))
    refuse_style("an Embedding", style, "Vocab{}");
  if (vocab && vocab->output && std::holds_alternative<Partial>(*vocab->output))
    throw ConfigError({"", "the output cannot be Partial", "Replicate or Shard", ""});
  Placements placements =
      split_parameters({{"weight", {options.num_embeddings(), options.embedding_dim()}}}, style, axes);
  Placements adapter = adapter_splits();
  std::erase_if(adapter, [&](const auto& each) { return !parameters_.contains(each.first); });
  placements.merge(adapter);
  placement_ = shard_of(placements, "weight");
  shard_parameters(*this, placements, axes);
  return placements;
}

}  // namespace gantry::nn
