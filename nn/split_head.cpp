#include "gantry/nn/split_head.h"

#include <algorithm>

#include <torch/torch.h>

#include "gantry/core/planted.h"
#include "gantry/nn/weight_gradient.h"
#include "gantry/tensors/kernels/cross_entropy.h"

namespace gantry::nn {
namespace {

Range words_of(const Linear& head) {
  const Cut& cut = head->weight_placement();
  return cut.sharded() ? cut.ranges(head->group()->rank()).front() : Range{0, head->options.out_features()};
}

// Largest logits, and what follows from them; a rank without a word that counts adds nothing to any of the sums.
torch::Tensor statistics_of(const HeadShare& share, bool with_all) {
  const torch::Tensor largest = kernels::row_maximum(share.logits, share.width);
  torch::Tensor all = torch::zeros({4, largest.size(0)}, largest.options());
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
  if (options.soft_cap > 0 && !planted("head-without-the-cap"))
    gradient = gradient * (1 - (logits / options.soft_cap).square());
  return options.scale == 1 ? gradient : gradient * options.scale;
}

}  // namespace

std::int64_t counted_words(const Linear& head, const CrossEntropyOptions& options) {
  return options.vocabulary > 0 ? options.vocabulary : head->options.out_features();
}

HeadShare head_forward(const Linear& head, const torch::Tensor& input, const torch::Tensor& labels,
                       const SplitHeadOptions& options) {
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
  return share;
}

HeadTotals head_totals(const torch::Tensor& statistics) {
  const torch::NoGradGuard no_graph;
  HeadTotals totals;
  totals.largest = std::get<0>(statistics.select(1, 0).max(0));
  for (std::int64_t rank = 0; rank < statistics.size(0); ++rank) {
    const torch::Tensor of_rank = statistics[rank];
    const torch::Tensor total =
        planted("head-without-rescaling") ? of_rank[1] : of_rank[1] * (of_rank[0] - totals.largest).exp();
    totals.total = rank == 0 ? total : totals.total + total;
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

torch::Tensor head_backward(const Linear& head, const HeadShare& share, const HeadTotals& totals, double seed,
                            const SplitHeadOptions& options) {
  const torch::NoGradGuard no_graph;
  const double smoothing = options.loss.label_smoothing;
  torch::Tensor weight;  // of the probabilities
  if (options.loss.z_loss > 0) weight = 1 + 2 * options.loss.z_loss * (totals.total.log() + totals.largest);
  const torch::Tensor gradient = kernels::loss_gradient(
      share.logits, {.width = share.width,
                     .largest = totals.largest,
                     .total = totals.total,
                     .labels = share.columns,
                     .weight = weight,
                     .scale = share.counted.to(totals.largest.scalar_type()) * seed,
                     .of_label = 1 - smoothing,
                     .of_all = smoothing / static_cast<double>(counted_words(head, options.loss))});
  const torch::Tensor plain = through_cap(gradient, share.logits, options);
  torch::Tensor input_part = at::mm(plain, head->weight);
  give_gradient(head->weight, nullptr, [&](torch::Tensor& into) { add_product(into, plain.t(), share.input); }, {});
  give_gradient(head->bias, nullptr, [&](torch::Tensor& into) { into.add_(plain.sum(0, false, into.scalar_type())); },
                {});
  return input_part;
}

}  // namespace gantry::nn
