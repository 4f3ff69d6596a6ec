#include "gantry/nn/cross_entropy.h"

#include <fmt/format.h>

#include "gantry/core/error.h"

namespace gantry::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

void check_labels(const torch::Tensor& labels, std::int64_t vocabulary, std::int64_t ignored) {
  const torch::Tensor wrong = ((labels < 0) | (labels >= vocabulary)) & (labels != ignored);
  if (!wrong.any().item<bool>()) return;
  const auto place = wrong.nonzero()[0][0].item<std::int64_t>();
  throw InputError({"labels",
                    fmt::format("{} at place {} is outside the vocabulary of {}", labels[place].item<std::int64_t>(),
                                place, vocabulary),
                    fmt::format("0 to {}, or {} to ignore it", vocabulary - 1, ignored),
                    "check that the data and the model use the same tokenizer"});
}

// The sum over counted rows of -log softmax(logits)[label], smoothed. One maximum and one sum travel over the group,
// for all three of: sum of exponentials, label's logit, sum of logits. Megatron-LM's vocabulary-parallel loss, with the
// smoothing over the whole vocabulary. The backward communicates nothing.
struct CrossEntropy : torch::autograd::Function<CrossEntropy> {
  static Variable forward(AutogradContext* context, const Variable& logits, const torch::Tensor& labels,
                          ProcessGroup* group, std::int64_t first, std::int64_t vocabulary, std::int64_t ignored,
                          double smoothing) {
    const std::int64_t rows = logits.size(0), width = logits.size(1);
    const torch::Tensor counted = labels != ignored;
    torch::Tensor largest =
        width > 0 ? std::get<0>(logits.max(1)) : logits.new_full({rows}, -std::numeric_limits<double>::infinity());
    if (group) group->all_reduce(largest, ReduceOp::kMax).wait();

    const torch::Tensor local = labels - first;
    const torch::Tensor here = (local >= 0) & (local < width) & counted;
    const torch::Tensor index = local.masked_fill(~here, 0).unsqueeze(1);
    torch::Tensor sums = logits.new_empty({3, rows});
    torch::Tensor probabilities = logits - largest.unsqueeze(1);
    sums[1] = width > 0 ? probabilities.gather(1, index).squeeze(1).masked_fill(~here, 0) : logits.new_zeros({rows});
    sums[2] = smoothing > 0 ? probabilities.sum(1) : logits.new_zeros({rows});
    probabilities.exp_();
    sums[0] = probabilities.sum(1);
    if (group) group->all_reduce(sums).wait();

    const torch::Tensor log_total = sums[0].log();
    torch::Tensor loss = log_total - (1 - smoothing) * sums[1];
    if (smoothing > 0) loss = loss - (smoothing / static_cast<double>(vocabulary)) * sums[2];
    probabilities.div_(sums[0].unsqueeze(1));
    context->save_for_backward({probabilities, index, here, counted});
    context->saved_data["smoothing"] = smoothing;
    context->saved_data["vocabulary"] = vocabulary;
    return loss.masked_fill(~counted, 0).sum();
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const torch::Tensor &probabilities = saved[0], &index = saved[1], &here = saved[2], &counted = saved[3];
    const double smoothing = context->saved_data["smoothing"].toDouble();
    torch::Tensor gradient = probabilities.clone();
    if (smoothing > 0) gradient.sub_(smoothing / static_cast<double>(context->saved_data["vocabulary"].toInt()));
    if (gradient.size(1) > 0)
      gradient.scatter_add_(1, index, (here.to(gradient.scalar_type()) * -(1 - smoothing)).unsqueeze(1));
    gradient.mul_((counted.to(gradient.scalar_type()) * gradients[0]).unsqueeze(1));
    return {gradient, {}, {}, {}, {}, {}, {}};
  }
};

}  // namespace

Loss cross_entropy(const torch::Tensor& logits, const torch::Tensor& labels, ProcessGroup& group,
                   const AxisPlacement& vocabulary, const CrossEntropyOptions& options) {
  std::int64_t first = 0, whole = logits.size(-1);
  if (vocabulary.sharded()) {
    const Range own = vocabulary.ranges(group.rank()).front();
    first = own.begin;
    whole = vocabulary.segments.front().extent.end;
    if (logits.size(-1) != own.size()) {
      throw UsageError({"cross entropy",
                        fmt::format("{} logits a token, where this rank's part of the vocabulary is {}",
                                    logits.size(-1), own.size()),
                        "logits split over tp as the output layer leaves them",
                        "don't gather the logits, or pass replicate() for whole ones"});
    }
  }
  const torch::Tensor flat = labels.reshape({-1});
  check_labels(flat, whole, options.ignore_index);
  // Whole logits are the same on every rank: each sums its own, without a group.
  ProcessGroup* over = vocabulary.sharded() ? &group : nullptr;
  const torch::Tensor sum = CrossEntropy::apply(logits.reshape({-1, logits.size(-1)}), flat, over, first, whole,
                                                options.ignore_index, options.label_smoothing);
  return Loss(sum, (flat != options.ignore_index).sum());
}

}  // namespace gantry::nn
