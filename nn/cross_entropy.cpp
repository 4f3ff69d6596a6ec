#include "gantry/nn/cross_entropy.h"

#include <algorithm>
#include <fmt/format.h>

#include "gantry/core/error.h"
#include "gantry/nn/row_losses.h"
#include "gantry/nn/split_head.h"
#include "gantry/tensors/host_copy.h"
#include "gantry/tensors/kernels/cross_entropy.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

}  // namespace

void check_labels(const torch::Tensor& labels, const torch::Tensor& known, std::int64_t vocabulary,
                  std::int64_t ignored, bool of_classes) {
  if (!known.defined())
    return check_on_device(((labels >= 0) & (labels < vocabulary)) | (labels == ignored),
                           "a label on the device is outside the vocabulary");
  const torch::Tensor numbers = known.to(torch::kInt64).contiguous();
  const auto* begin = numbers.const_data_ptr<std::int64_t>();
  const auto* end = begin + numbers.numel();
  const auto* wrong = std::find_if(
      begin, end, [=](std::int64_t label) { return (label < 0 || label >= vocabulary) && label != ignored; });
  if (wrong == end) return;
  if (of_classes)
    throw InputError(
        {"labels",
         fmt::format("label {} at index {} is not one of the model's {} classes", *wrong, wrong - begin, vocabulary),
         fmt::format("0 to {}, or {} to ignore it", vocabulary - 1, ignored),
         "correct the labels, or set model.config.num_labels"});
  throw InputError(
      {"labels",
       fmt::format("label {} at index {} is outside the vocabulary of {} tokens", *wrong, wrong - begin, vocabulary),
       fmt::format("0 to {}, or {} to ignore it", vocabulary - 1, ignored),
       "check that the data and the model use the same tokenizer"});
}

LossTerms loss_terms(const HeldColumns& held, const CrossEntropyOptions& options) {
  if (options.vocabulary > held.all)
    throw UsageError({"cross entropy",
                      fmt::format("the vocabulary of {} tokens is larger than the {} columns of the logits",
                                  options.vocabulary, held.all),
                      "at most the number of columns", ""});
  return {.group = held.group,
          .first = held.first,
          .vocabulary = options.vocabulary > 0 ? options.vocabulary : held.all,
          .ignored = options.ignore_index,
          .smoothing = options.label_smoothing,
          .z_loss = options.z_loss};
}

RowLabels row_labels(const torch::Tensor& labels, std::int64_t rows, const LossTerms& terms,
                     const CrossEntropyOptions& options) {
  if (!at::isIntegralType(labels.scalar_type(), /*includeBool=*/true))
    throw UsageError({"cross entropy", "the labels are " + describe(labels), "integers", "pass the class of each row"});
  const torch::Tensor flat = labels.reshape({-1}).to(torch::kInt64);
  if (flat.numel() != rows)
    throw UsageError({"cross entropy",
                      fmt::format("there are {} rows of logits, but the labels are {}", rows, describe(labels)),
                      "one label per row of the logits", ""});
  torch::Tensor known = on_host(labels);
  if (known.defined()) known = known.to(torch::kInt64);
  check_labels(flat, known, terms.vocabulary, terms.ignored, options.of_classes);
  return {flat, ((known.defined() ? known : flat) != terms.ignored).sum()};
}

torch::Tensor label_columns(const torch::Tensor& labels, const torch::Tensor& counted, std::int64_t first,
                            std::int64_t width) {
  const torch::Tensor local = labels - first;
  return local.masked_fill(~((local >= 0) & (local < width) & counted), -1);
}

RowLosses row_losses(const torch::Tensor& sums, const torch::Tensor& largest, const torch::Tensor& counted,
                     const LossTerms& terms) {
  const torch::Tensor log_total = sums[0].log();
  torch::Tensor loss = log_total - (1 - terms.smoothing) * sums[1];
  if (terms.smoothing > 0) loss = loss - (terms.smoothing / static_cast<double>(terms.vocabulary)) * sums[2];
  torch::Tensor weight;
  if (terms.z_loss > 0) {
    const torch::Tensor z = log_total + largest;
    loss = loss + terms.z_loss * z * z;
    weight = 1 + 2 * terms.z_loss * z;
  }
  return {loss.masked_fill(~counted, 0), weight};
}

namespace {

// For each row -log softmax(logits)[label], smoothed; 0 for a row that does not count. The group reduces a
// maximum, and then in one message three sums: of exponentials, of the label's logit and of logits. This is
// Megatron-LM's vocabulary-parallel loss, with smoothing over the full vocabulary. The backward does not
// communicate, and computes the probabilities again.
struct CrossEntropy : torch::autograd::Function<CrossEntropy> {
  static Variable forward(AutogradContext* context, const Variable& logits, const torch::Tensor& labels,
                          const LossTerms& terms) {
    const std::int64_t width = std::clamp<std::int64_t>(terms.vocabulary - terms.first, 0, logits.size(1));
    torch::Tensor largest = kernels::row_maximum(logits, width);
    if (terms.group) terms.group->all_reduce(largest, ReduceOp::kMax).wait();

    const torch::Tensor counted = labels != terms.ignored;
    const torch::Tensor columns = label_columns(labels, counted, terms.first, width);
    torch::Tensor sums = kernels::row_sums(logits, width, largest, columns, terms.smoothing > 0);
    if (terms.group) terms.group->all_reduce(sums).wait();

    const auto [losses, weight] = row_losses(sums, largest, counted, terms);
    context->save_for_backward({logits, largest, sums[0], columns, counted, weight});
    context->saved_data["width"] = width;
    context->saved_data["of_label"] = 1 - terms.smoothing;
    context->saved_data["of_all"] = terms.smoothing / static_cast<double>(terms.vocabulary);
    return losses;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const torch::Tensor &logits = saved[0], &largest = saved[1];
    return {kernels::loss_gradient(logits, {.width = context->saved_data["width"].toInt(),
                                            .largest = largest,
                                            .total = saved[2],
                                            .labels = saved[3],
                                            .weight = saved[5],
                                            .scale = saved[4].to(largest.scalar_type()) * gradients[0],
                                            .of_label = context->saved_data["of_label"].toDouble(),
                                            .of_all = context->saved_data["of_all"].toDouble()}),
            {},
            {}};
  }
};

CountedLosses counted_losses(const torch::Tensor& logits, const torch::Tensor& labels, const HeldColumns& held,
                             const CrossEntropyOptions& options) {
  const LossTerms terms = loss_terms(held, options);
  const torch::Tensor rows = logits.reshape({-1, logits.size(-1)});
  const auto [flat, count] = row_labels(labels, rows.size(0), terms, options);
  return {CrossEntropy::apply(rows, flat, terms), count};
}

CountedLosses counted_losses(const torch::Tensor& logits, const torch::Tensor& labels,
                             const CrossEntropyOptions& options) {
  return counted_losses(logits, labels, {.all = logits.size(-1)}, options);
}

CountedLosses counted_losses(const torch::Tensor& logits, const torch::Tensor& labels, ProcessGroup& group,
                             const ShardSpec& vocabulary, const CrossEntropyOptions& options) {
  if (!vocabulary.sharded()) return counted_losses(logits, labels, options);
  const Range own = vocabulary.ranges(group.rank()).front();
  if (logits.size(-1) != own.size()) {
    throw UsageError({"cross entropy",
                      fmt::format("a token has {} logits, but this rank's shard of the vocabulary has {} tokens",
                                  logits.size(-1), own.size()),
                      "logits sharded over tp, as the output layer returns them",
                      "do not gather the logits, or pass replicate() for full logits"});
  }
  return counted_losses(logits, labels,
                        {.group = &group, .first = own.begin, .all = vocabulary.segments.front().extent.end}, options);
}

}  // namespace

Loss cross_entropy(const torch::Tensor& logits, const torch::Tensor& labels, ProcessGroup& group,
                   const ShardSpec& vocabulary, const CrossEntropyOptions& options) {
  return counted_losses(logits, labels, group, vocabulary, options).sum();
}

Loss cross_entropy(const torch::Tensor& logits, const torch::Tensor& labels, const CrossEntropyOptions& options) {
  return counted_losses(logits, labels, options).sum();
}

torch::Tensor token_losses(const torch::Tensor& logits, const torch::Tensor& labels, ProcessGroup& group,
                           const ShardSpec& vocabulary, const CrossEntropyOptions& options) {
  return counted_losses(logits, labels, group, vocabulary, options).losses.view(labels.sizes());
}

torch::Tensor token_losses(const torch::Tensor& logits, const torch::Tensor& labels,
                           const CrossEntropyOptions& options) {
  return counted_losses(logits, labels, options).losses.view(labels.sizes());
}

}  // namespace gantry::nn
