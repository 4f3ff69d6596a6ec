#include "gantry/nn/split_head.h"

#include <algorithm>
#include <utility>

#include "gantry/nn/weight_gradient.h"
#include "gantry/tensors/kernels/cross_entropy.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::nn {
namespace {

Range words_of(const Linear& head) {
  const ShardSpec& shard = head->weight_placement();
  return shard.sharded() ? shard.ranges(head->group()->rank()).front() : Range{0, head->options.out_features()};
}

// The largest logits, and the sums relative to them. A rank without words that count adds nothing to the
// sums.
torch::Tensor statistics_of(const HeadShare& share, bool with_all) {
  const torch::Tensor largest = kernels::row_maximum(share.logits, share.width);
  torch::Tensor all = torch::zeros({kHeadStatistics, largest.size(0)}, largest.options());
  all[0].copy_(largest);
  if (share.width == 0) return all;
  const torch::Tensor sums = kernels::row_sums(share.logits, share.width, largest, share.columns, with_all);
  all[1].copy_(sums[0]);
  all[2].copy_((sums[1] + largest).masked_fill(share.columns < 0, 0));
  if (with_all) all[3].copy_(sums[2] + static_cast<double>(share.width) * largest);
  return all;
}

// Converts the gradient of the logits to the gradient of the output before scale and soft cap.
torch::Tensor through_cap(torch::Tensor gradient, const torch::Tensor& logits, const LogitForm& form) {
  if (form.soft_cap > 0) gradient = gradient * (1 - (logits / form.soft_cap).square());
  return form.scale == 1 ? gradient : gradient * form.scale;
}

// The products of algorithm 2, and the sum of exponentials without the label's, over this rank's words only.
void begin_input_gradient(HeadShare& share, const Linear& head, const SplitHeadOptions& options) {
  const torch::Tensor largest = share.statistics[0].unsqueeze(1);
  const auto zeros = [&] { return torch::zeros(share.input.sizes(), largest.options()); };
  share.by_exponentials = zeros();
  if (options.loss.label_smoothing > 0) share.by_slopes = zeros();
  if (share.width == 0) return;
  const torch::Tensor logits = share.logits.narrow(1, 0, share.width);
  const torch::Tensor rows = head->weight.narrow(0, 0, share.width);
  torch::Tensor powers = (logits.to(largest.scalar_type()) - largest).exp();
  const torch::Tensor at = share.columns.clamp_min(0).unsqueeze(1);
  powers.scatter_(1, at, powers.gather(1, at).masked_fill(share.columns.unsqueeze(1) >= 0, 0));
  share.statistics[4].copy_(powers.sum(1));
  add_product(share.by_exponentials, through_cap(powers, logits, options.form).to(rows.scalar_type()), rows);
  if (share.by_slopes.defined())
    add_product(share.by_slopes, through_cap(torch::ones_like(logits), logits, options.form), rows);
}

// The factor of the probabilities in gradients with z-loss. Undefined without it, when the factor is 1.
torch::Tensor weight_of(const HeadTotals& totals, const CrossEntropyOptions& options) {
  if (options.z_loss == 0) return {};
  return 1 + 2 * options.z_loss * (totals.total.log() + totals.largest);
}

// Tiles are also computed in the type of the sums, so the limit applies to the larger type.
std::int64_t tile_elements(const torch::Tensor& input, const SplitHeadOptions& options) {
  const auto bytes_of_sum = static_cast<std::int64_t>(c10::elementSize(kernels::sum_type(input)));
  return options.limit / std::max<std::int64_t>(input.element_size(), bytes_of_sum);
}

HeadFactors factors_of(const Linear& head, const HeadShare& share, const SplitHeadOptions& options) {
  return {{share.input, {}}, {head->weight, {}}, head->bias, options.form};
}

// The same as statistics_of() and begin_input_gradient(), tile by tile. The sums of earlier tiles are
// rescaled to the largest logits so far.
void add_tile(HeadShare& share, RowSums& sums, const HeadFactors& factors, const Range& rows, const Range& tile,
              bool with_all, const torch::Tensor& others) {
  torch::Tensor logits = factors.logits(rows, tile);
  const torch::Tensor columns = columns_in(share.columns, rows, tile).unsqueeze(1);
  const torch::Tensor factor = sums.add(rows, logits, columns.squeeze(1), with_all);
  if (!others.defined()) return;
  const torch::Tensor largest = rows_of(sums.largest, rows).unsqueeze(1), at = columns.clamp_min(0);
  torch::Tensor powers = (logits.to(largest.scalar_type()) - largest).exp_();
  powers.scatter_(1, at, powers.gather(1, at).masked_fill(columns >= 0, 0));
  rows_of(others, rows).mul_(factor).add_(powers.sum(1));
  rows_of(share.by_exponentials, rows).mul_(factor.unsqueeze(1));
  const torch::Tensor by_output = through_form(powers, logits, factors.form).to(logits.scalar_type());
  add_input_gradient(share.by_exponentials, by_output, factors.weights[0], rows, tile);
  if (!share.by_slopes.defined()) return;
  const torch::Tensor slopes = through_form(torch::ones_like(logits), logits, factors.form);
  add_input_gradient(share.by_slopes, slopes, factors.weights[0], rows, tile);
}

void forward_in_tiles(HeadShare& share, const Linear& head, const SplitHeadOptions& options, HeadWork work) {
  const bool with_all = options.loss.label_smoothing > 0;
  const std::int64_t count = share.input.size(0);
  const auto type = share.input.options().dtype(kernels::sum_type(share.input));
  torch::Tensor others;
  if (work == HeadWork::kInputGradient) {
    others = torch::zeros({count}, type);
    share.by_exponentials = torch::zeros(share.input.sizes(), type);
    if (with_all) share.by_slopes = torch::zeros(share.input.sizes(), type);
  }
  RowSums sums(count, type);
  const HeadFactors factors = factors_of(head, share, options);
  const Tiles tiles(count, share.width, tile_elements(share.input, options));
  tiles.for_each(
      [&](const Range& rows, const Range& tile) { add_tile(share, sums, factors, rows, tile, with_all, others); });
  share.statistics = torch::stack(
      {sums.largest, sums.total, sums.label, sums.all, others.defined() ? others : torch::zeros_like(sums.all)});
}

// Calls `use` with the gradient of the head's output, in one piece or in tiles, and with its rows and words.
template <class Use>
void for_each_gradient(const Linear& head, const HeadShare& share, const HeadTotals& totals, double seed,
                       const SplitHeadOptions& options, const Use& use) {
  const double smoothing = options.loss.label_smoothing;
  const kernels::LossGradient loss{.width = share.width,
                                   .largest = totals.largest,
                                   .total = totals.total,
                                   .labels = share.columns,
                                   .weight = weight_of(totals, options.loss),
                                   .scale = share.counted.to(totals.largest.scalar_type()) * seed,
                                   .of_label = 1 - smoothing,
                                   .of_all = smoothing / static_cast<double>(counted_words(head, options.loss))};
  const std::int64_t count = share.input.size(0);
  if (share.logits.defined()) {
    const torch::Tensor gradient = kernels::loss_gradient(share.logits, loss);
    return use(through_cap(gradient, share.logits, options.form), Range{0, count}, Range{0, share.logits.size(1)});
  }
  const HeadFactors factors = factors_of(head, share, options);
  const Tiles tiles(count, share.width, tile_elements(share.input, options));
  tiles.for_each(
      [&](const Range& rows, const Range& tile) { use(tile_gradient(factors, loss, rows, tile), rows, tile); });
}

}  // namespace

std::int64_t counted_words(const Linear& head, const CrossEntropyOptions& options) {
  return options.vocabulary > 0 ? options.vocabulary : head->options.out_features();
}

HeadShare head_forward(const Linear& head, const torch::Tensor& input, const torch::Tensor& labels,
                       const SplitHeadOptions& options, HeadWork work) {
  const torch::NoGradGuard no_graph;
  HeadShare share;
  share.input = input.reshape({-1, head->options.in_features()});
  const Range own = words_of(head);
  if (labels.defined()) {
    share.width = std::clamp<std::int64_t>(counted_words(head, options.loss) - own.begin, 0, own.size());
    share.counted = labels != options.loss.ignore_index;
    share.columns = label_columns(labels, share.counted, own.begin, share.width);
    if (share.input.size(0) * own.size() * share.input.element_size() > options.limit) {
      forward_in_tiles(share, head, options, work);
      return share;
    }
  }
  const torch::Tensor plain = head->bias.defined() ? at::addmm(head->bias, share.input, head->weight.t())
                                                   : at::mm(share.input, head->weight.t());
  share.logits = logits_of(plain, options.form);
  if (!labels.defined()) return share;
  share.statistics = statistics_of(share, options.loss.label_smoothing > 0);
  if (work == HeadWork::kInputGradient) begin_input_gradient(share, head, options);
  return share;
}

HeadTotals head_totals(const torch::Tensor& statistics) {
  const torch::NoGradGuard no_graph;
  HeadTotals totals;
  totals.largest = std::get<0>(statistics.select(1, 0).max(0));
  for (std::int64_t rank = 0; rank < statistics.size(0); ++rank) {
    const torch::Tensor of_rank = statistics[rank];
    const auto rescaled = [&](const torch::Tensor& sum) { return sum * (of_rank[0] - totals.largest).exp(); };
    const torch::Tensor total = rescaled(of_rank[1]), others = rescaled(of_rank[4]);
    totals.total = rank == 0 ? total : totals.total + total;
    totals.others = rank == 0 ? others : totals.others + others;
    totals.label = rank == 0 ? of_rank[2] : totals.label + of_rank[2];
    totals.all = rank == 0 ? of_rank[3] : totals.all + of_rank[3];
  }
  return totals;
}

torch::Tensor head_loss(const HeadTotals& totals, const torch::Tensor& counted, std::int64_t words,
                        const CrossEntropyOptions& options) {
  const torch::NoGradGuard no_graph;
  const double smoothing = options.label_smoothing;
  const torch::Tensor log_total = totals.total.log(), normaliser = log_total + totals.largest;
  torch::Tensor loss = log_total - (1 - smoothing) * (totals.label - totals.largest);
  if (smoothing > 0) loss = loss - smoothing * (totals.all / static_cast<double>(words) - totals.largest);
  if (options.z_loss > 0) loss = loss + options.z_loss * normaliser.square();
  return loss.masked_fill(~counted, 0).sum();
}

torch::Tensor head_input_part(const Linear& head, HeadShare& share, const HeadTotals& totals, double seed,
                              const SplitHeadOptions& options) {
  const torch::NoGradGuard no_graph;
  const double smoothing = options.loss.label_smoothing;
  const torch::Tensor weight = weight_of(totals, options.loss), own = share.columns >= 0;
  torch::Tensor of_sum = (share.statistics[0] - totals.largest).exp() / totals.total;
  // The label's probability minus 1. It is computed from the other words, so that it is exact for an almost
  // certain label.
  torch::Tensor of_label = smoothing - totals.others / totals.total;
  if (weight.defined()) {
    of_sum = of_sum * weight;
    of_label = of_label + (weight - 1) * (totals.label - totals.largest).exp() / totals.total;
  }
  torch::Tensor part = std::exchange(share.by_exponentials, {}) * of_sum.unsqueeze(1);
  if (share.width > 0) {
    const torch::Tensor at = share.columns.clamp_min(0);
    const torch::Tensor of_labels =
        share.logits.defined() ? share.logits.gather(1, at.unsqueeze(1)) : share.statistics[2].unsqueeze(1);
    const torch::Tensor logits = of_labels.to(part.scalar_type());
    const torch::Tensor factor = through_cap(of_label.masked_fill(~own, 0).unsqueeze(1), logits, options.form);
    part = part.add_(head->weight.index_select(0, at).to(part.scalar_type()) * factor);
  }
  if (smoothing > 0)
    part.sub_(std::exchange(share.by_slopes, {}), smoothing / static_cast<double>(counted_words(head, options.loss)));
  // Ignored rows can contain any values.
  return part.mul_(seed).masked_fill_(~share.counted.unsqueeze(1), 0).to(head->weight.scalar_type());
}

torch::Tensor head_backward(const Linear& head, const HeadShare& share, const HeadTotals& totals, double seed,
                            const SplitHeadOptions& options) {
  const torch::NoGradGuard no_graph;
  const HeadFactors factors = factors_of(head, share, options);
  HeadGradients of_head(factors);
  torch::Tensor input_part;
  if (!share.logits.defined()) input_part = torch::zeros(share.input.sizes(), totals.largest.options());
  for_each_gradient(head, share, totals, seed, options,
                    [&](const torch::Tensor& gradient, const Range& rows, const Range& tile) {
                      if (share.logits.defined())
                        input_part = at::mm(gradient, head->weight);
                      else
                        add_input_gradient(input_part, gradient, head->weight, rows, tile);
                      of_head.add(gradient, rows, tile);
                    });
  return input_part.to(head->weight.scalar_type());
}

void head_weight_backward(const Linear& head, const HeadShare& share, const HeadTotals& totals, double seed,
                          const SplitHeadOptions& options) {
  const torch::NoGradGuard no_graph;
  const HeadFactors factors = factors_of(head, share, options);
  HeadGradients of_head(factors);
  for_each_gradient(
      head, share, totals, seed, options,
      [&](const torch::Tensor& gradient, const Range& rows, const Range& tile) { of_head.add(gradient, rows, tile); });
}

}  // namespace gantry::nn
