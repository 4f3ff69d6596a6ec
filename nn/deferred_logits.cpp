#include "gantry/nn/deferred_logits.h"

#include <algorithm>
#include <array>
#include <optional>

#include "gantry/nn/forward.h"
#include "gantry/nn/row_losses.h"
#include "gantry/tensors/host_copy.h"
#include "gantry/tensors/kernels/cross_entropy.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;
using OptionalTensor = std::optional<torch::Tensor>;

// The same on all ranks, whose parts may differ by a column.
bool is_larger(const Linear& head, const torch::Tensor& hidden, const DeferredLogits& wanted) {
  const ShardSpec& held = head->weight_placement();
  const std::int64_t columns = held.sharded() ? held.local_size(0) : head->options.out_features();
  return wanted.rows * columns * hidden.element_size() > wanted.limit;
}

// The sums of row_losses() over the columns of this rank. `most`: the largest logits of all ranks.
torch::Tensor sums_less(const RowSums& own, const torch::Tensor& most, const torch::Tensor& columns, std::int64_t width,
                        bool with_all) {
  return torch::stack({own.total * (own.largest - most).exp(), (own.label - most).masked_fill(columns < 0, 0),
                       with_all ? own.all - static_cast<double>(width) * most : torch::zeros_like(own.all)});
}

struct TileOptions {
  LossTerms terms;
  LogitForm form;
  std::int64_t limit = 0;  // bytes
};

struct TiledCrossEntropy : torch::autograd::Function<TiledCrossEntropy> {
  static Variable forward(AutogradContext* context, const Variable& input, const torch::Tensor& weight,
                          const OptionalTensor& bias, const OptionalTensor& narrow, const OptionalTensor& wide,
                          const torch::Tensor& labels, const TileOptions& options) {
    const LossTerms& terms = options.terms;
    const torch::Tensor none;
    const HeadFactors factors{
        {input, narrow.value_or(none)}, {weight, wide.value_or(none)}, bias.value_or(none), options.form};
    const std::int64_t rows = input.size(0);
    const std::int64_t width = std::clamp<std::int64_t>(terms.vocabulary - terms.first, 0, weight.size(0));
    const bool with_all = terms.smoothing > 0;
    const torch::Tensor counted = labels != terms.ignored;
    const torch::Tensor columns = label_columns(labels, counted, terms.first, width);
    // The derivative of the cap is computed in the type of the sums.
    const auto bytes_of_sum = static_cast<std::int64_t>(c10::elementSize(kernels::sum_type(input)));
    const std::int64_t most =
        options.limit / std::max<std::int64_t>(input.element_size(), options.form.soft_cap > 0 ? bytes_of_sum : 1);

    RowSums own(rows, input.options().dtype(kernels::sum_type(input)).requires_grad(false));
    const Tiles tiles(rows, width, most);
    tiles.for_each([&](const Range& tile_rows, const Range& tile) {
      own.add(tile_rows, factors.logits(tile_rows, tile), columns_in(columns, tile_rows, tile), with_all);
    });
    torch::Tensor largest = own.largest.clone();
    if (terms.group) terms.group->all_reduce(largest, ReduceOp::kMax).wait();
    torch::Tensor sums = sums_less(own, largest, columns, width, with_all);
    if (terms.group) terms.group->all_reduce(sums).wait();

    const auto [losses, factor] = row_losses(sums, largest, counted, terms);
    context->save_for_backward({input, factors.inputs[1], weight, factors.weights[1], factors.bias, largest,
                                sums[0].contiguous(), columns, counted, factor});
    context->saved_data["of_input"] = input.requires_grad();
    context->saved_data["of_narrow"] = narrow && narrow->requires_grad();
    context->saved_data["width"] = width;
    context->saved_data["most"] = most;
    context->saved_data["scale"] = options.form.scale;
    context->saved_data["soft_cap"] = options.form.soft_cap;
    context->saved_data["of_label"] = 1 - terms.smoothing;
    context->saved_data["of_all"] = terms.smoothing / static_cast<double>(terms.vocabulary);
    return losses;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const HeadFactors factors{{saved[0], saved[1]},
                              {saved[2], saved[3]},
                              saved[4],
                              {context->saved_data["scale"].toDouble(), context->saved_data["soft_cap"].toDouble()}};
    const torch::Tensor& largest = saved[5];
    const auto zeros = [&](int i, const char* is_needed) {
      return context->saved_data[is_needed].toBool() ? torch::zeros(factors.inputs[i].sizes(), largest.options())
                                                     : torch::Tensor();
    };
    const std::array<torch::Tensor, 2> of_inputs = {zeros(0, "of_input"), zeros(1, "of_narrow")};

    const kernels::LossGradient loss{.largest = largest,
                                     .total = saved[6],
                                     .labels = saved[7],
                                     .weight = saved[9],
                                     .scale = saved[8].to(largest.scalar_type()) * gradients[0],
                                     .of_label = context->saved_data["of_label"].toDouble(),
                                     .of_all = context->saved_data["of_all"].toDouble()};
    HeadGradients of_head(factors);
    const Tiles tiles(factors.inputs[0].size(0), context->saved_data["width"].toInt(),
                      context->saved_data["most"].toInt());
    tiles.for_each([&](const Range& rows, const Range& tile) {
      const torch::Tensor gradient = tile_gradient(factors, loss, rows, tile);
      for (int i = 0; i < 2; ++i) add_input_gradient(of_inputs[i], gradient, factors.weights[i], rows, tile);
      of_head.add(gradient, rows, tile);
    });
    const auto as_given = [&](int i) {
      return of_inputs[i].defined() ? of_inputs[i].to(factors.inputs[i].scalar_type()) : torch::Tensor();
    };
    return {as_given(0), {}, {}, as_given(1), {}, {}, {}};
  }
};

// The indices of the rows that count, if the host knows the labels and leaving the others out is worth a copy of the
// inputs; else undefined. All ranks of the head's group have the same labels, so they compute the same rows.
torch::Tensor rows_to_compute(const torch::Tensor& labels, std::int64_t ignored) {
  constexpr double kLargestShare = 0.875;
  const torch::Tensor known = on_host(labels);
  if (!known.defined()) return {};
  const torch::Tensor rows = (known.reshape({-1}) != ignored).nonzero().squeeze(1);
  const bool are_few = static_cast<double>(rows.numel()) <= kLargestShare * static_cast<double>(labels.numel());
  return rows.numel() > 0 && are_few ? to_device(rows, labels.device()) : torch::Tensor();
}

CountedLosses counted_losses(const DeferredLogits& logits, const torch::Tensor& labels,
                             const CrossEntropyOptions& options) {
  Linear head = logits.head;
  HeldColumns held{.all = head->options.out_features()};
  if (const ShardSpec& shard = head->weight_placement(); shard.sharded()) {
    held.group = head->group();
    held.first = shard.ranges(held.group->rank()).front().begin;
  }
  const LinearImpl::Factors factors = head->factors(logits.hidden);
  const TileOptions tiles{loss_terms(held, options), logits.form, logits.limit};
  const std::int64_t rows = factors.inputs[0].numel() / factors.inputs[0].size(-1);
  const auto [flat, count] = row_labels(labels, rows, tiles.terms, options);
  const torch::Tensor computed = rows_to_compute(labels, tiles.terms.ignored);
  const auto of_rows = [&](const torch::Tensor& all) {
    return computed.defined() ? all.index_select(0, computed) : all;
  };
  const auto input = [&](std::size_t i) {
    return of_rows(factors.inputs[i].reshape({rows, factors.inputs[i].size(-1)}));
  };
  OptionalTensor bias, narrow, wide;
  if (factors.bias.defined()) bias = factors.bias;
  if (factors.inputs.size() > 1) narrow = input(1), wide = factors.weights[1];
  const torch::Tensor losses =
      TiledCrossEntropy::apply(input(0), factors.weights[0], bias, narrow, wide, of_rows(flat), tiles);
  if (!computed.defined()) return {losses, count};
  return {torch::zeros({rows}, losses.options().requires_grad(false)).index_copy(0, computed, losses), count};
}

}  // namespace

TensorDict head_output(const Linear& given, const torch::Tensor& hidden, const LogitForm& form) {
  Linear head = given;
  if (DeferredLogits* wanted = forward_now().logits;
      wanted && head->has_factors() && is_larger(head, hidden, *wanted)) {
    wanted->head = head;
    wanted->form = form;
    return {{"hidden", hidden}};
  }
  return {{"logits", logits_of(head(hidden), form)}};
}

Loss cross_entropy(const DeferredLogits& logits, const torch::Tensor& labels, const CrossEntropyOptions& options) {
  return counted_losses(logits, labels, options).sum();
}

Loss head_cross_entropy(const Linear& given, const torch::Tensor& hidden, const torch::Tensor& labels,
                        const LogitForm& form) {
  Linear head = given;
  if (const DeferredLogits* wanted = forward_now().logits; wanted && head->has_factors()) {
    DeferredLogits logits{.rows = labels.numel(), .limit = wanted->limit, .head = head, .form = form, .hidden = hidden};
    if (is_larger(head, hidden, logits)) return cross_entropy(logits, labels);
  }
  const torch::Tensor logits = logits_of(head(hidden), form);
  const ShardSpec& held = head->weight_placement();
  const bool is_full = !held.sharded() || logits.size(-1) == head->options.out_features();  // gathered
  return is_full ? cross_entropy(logits, labels) : cross_entropy(logits, labels, *head->group(), held);
}

torch::Tensor token_losses(const DeferredLogits& logits, const torch::Tensor& labels,
                           const CrossEntropyOptions& options) {
  return counted_losses(logits, labels, options).losses.view(labels.sizes());
}

}  // namespace gantry::nn
