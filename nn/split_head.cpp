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

// Largest logits, and what follows from them; a rank without a word that counts adds nothing to any of the sums.
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

// By the logits before scale and cap.
torch::Tensor through_cap(torch::Tensor gradient, const torch::Tensor& logits, const SplitHeadOptions& options) {
  if (options.soft_cap > 0) gradient = gradient * (1 - (logits / options.soft_cap).square());
  return options.scale == 1 ? gradient : gradient * options.scale;
}

// The products of algorithm 2, and the sum of exponentials without the label's: all of this rank's words alone.
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
  add_product(share.by_exponentials, through_cap(powers, logits, options).to(rows.scalar_type()), rows);
  if (share.by_slopes.defined())
    add_product(share.by_slopes, through_cap(torch::ones_like(logits), logits, options), rows);
}

// 1, or with z-loss what the probabilities are multiplied by in gradients.
torch::Tensor weight_of(const HeadTotals& totals, const CrossEntropyOptions& options) {
  if (options.z_loss == 0) return {};
  return 1 + 2 * options.z_loss * (totals.total.log() + totals.largest);
}

// [rows, words held here], by the logits before scale and cap.
torch::Tensor logit_gradient(const Linear& head, const HeadShare& share, const HeadTotals& totals, double seed,
                             const SplitHeadOptions& options) {
  const double smoothing = options.loss.label_smoothing;
  const torch::Tensor gradient = kernels::loss_gradient(
      share.logits, {.width = share.width,
                     .largest = totals.largest,
                     .total = totals.total,
                     .labels = share.columns,
                     .weight = weight_of(totals, options.loss),
                     .scale = share.counted.to(totals.largest.scalar_type()) * seed,
                     .of_label = 1 - smoothing,
                     .of_all = smoothing / static_cast<double>(counted_words(head, options.loss))});
  return through_cap(gradient, share.logits, options);
}

void add_weight_gradients(const Linear& head, const HeadShare& share, const torch::Tensor& gradient) {
  give_gradient(head->weight, nullptr, [&](torch::Tensor& into) { add_product(into, gradient.t(), share.input); }, {});
  give_gradient(head->bias, nullptr,
                [&](torch::Tensor& into) { into.add_(gradient.sum(0, false, into.scalar_type())); }, {});
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
  const torch::Tensor plain = head->bias.defined() ? at::addmm(head->bias, share.input, head->weight.t())
                                                   : at::mm(share.input, head->weight.t());
  share.logits = options.scale == 1 ? plain : plain * options.scale;
  if (options.soft_cap > 0) share.logits = (share.logits / options.soft_cap).tanh() * options.soft_cap;
  if (!labels.defined()) return share;
  const Range own = words_of(head);
  share.width = std::clamp<std::int64_t>(counted_words(head, options.loss) - own.begin, 0, own.size());
  share.counted = labels != options.loss.ignore_index;
  const torch::Tensor local = labels - own.begin;
  share.columns = local.masked_fill(~((local >= 0) & (local < share.width) & share.counted), -1);
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
  // The label's probability less 1: of all others, so that it is exact where the label is near certain.
  torch::Tensor of_label = smoothing - totals.others / totals.total;
  if (weight.defined()) {
    of_sum = of_sum * weight;
    of_label = of_label + (weight - 1) * (totals.label - totals.largest).exp() / totals.total;
  }
  torch::Tensor part = std::exchange(share.by_exponentials, {}) * of_sum.unsqueeze(1);
  if (share.width > 0) {
    const torch::Tensor at = share.columns.clamp_min(0);
    const torch::Tensor logits = share.logits.gather(1, at.unsqueeze(1)).to(part.scalar_type());
    const torch::Tensor factor = through_cap(of_label.masked_fill(~own, 0).unsqueeze(1), logits, options);
    part = part.add_(head->weight.index_select(0, at).to(part.scalar_type()) * factor);
  }
  if (smoothing > 0)
    part.sub_(std::exchange(share.by_slopes, {}), smoothing / static_cast<double>(counted_words(head, options.loss)));
  // Rows that are ignored may hold anything.
  return part.mul_(seed).masked_fill_(~share.counted.unsqueeze(1), 0).to(head->weight.scalar_type());
}

torch::Tensor head_backward(const Linear& head, const HeadShare& share, const HeadTotals& totals, double seed,
                            const SplitHeadOptions& options) {
  const torch::NoGradGuard no_graph;
  const torch::Tensor gradient = logit_gradient(head, share, totals, seed, options);
  torch::Tensor input_part = at::mm(gradient, head->weight);
  add_weight_gradients(head, share, gradient);
  return input_part;
}

void head_weight_backward(const Linear& head, const HeadShare& share, const HeadTotals& totals, double seed,
                          const SplitHeadOptions& options) {
  const torch::NoGradGuard no_graph;
  add_weight_gradients(head, share, logit_gradient(head, share, totals, seed, options));
}

}  // namespace gantry::nn
