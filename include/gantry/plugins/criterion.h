// The criterion: computes the loss from the outputs of the last stage and the microbatch.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "gantry/nn/cross_entropy.h"

namespace gantry {

namespace nn {
struct DeferredLogits;
}

// An output whose last dimension is sharded over tp: the group and the sharding.
struct SplitDim {
  ProcessGroup* group = nullptr;
  ShardSpec placement;
};
using SplitOutputs = std::map<std::string, SplitDim>;

// A cross entropy of one output in declarative form, which can be computed without the full output on any rank.
struct LabelledLoss {
  nn::CrossEntropyOptions options;
  std::string logits, labels;                                       // name of the output, and name of the batch entry
  std::function<torch::Tensor(const torch::Tensor& labels)> align;  // aligns the labels with the logits
};

// A loss function, with the properties that are needed to compute it on sharded outputs or sequences. It is called once
// per microbatch on the ranks of the last stage, with the outputs and the entries of this microbatch. It must not
// call collectives, except over the group of a SplitDim.
class Criterion {
 public:
  using Function = std::function<Loss(const TensorDict& outputs, const TensorDict& batch)>;
  using SplitFunction =
      std::function<Loss(const TensorDict& outputs, const TensorDict& batch, const SplitOutputs& split)>;

  Criterion() = default;  // no criterion: forward only

  // A callable of (outputs, batch) that returns a Loss{sum, count} or a scalar mean. It receives full outputs. A mean
  // is taken as a mean over the samples of the microbatch, so microbatches and replicas are weighted by their number of
  // samples. This is wrong for a mean over tokens or labels if samples differ in their number of labels. A mean
  // therefore throws UsageError if an integer entry of the batch with `label` or `target` in its name contains -100 (an
  // ignored label); see mean_over_labels().
  template <class F>
  requires std::is_invocable_r_v<Loss, F, const TensorDict&, const TensorDict&> Criterion(F function)
      : function_(std::move(function)) {}  // NOLINT: a callable is a criterion

  // A criterion that can process outputs that are sharded over tp.
  static Criterion on_split_outputs(SplitFunction function) {
    Criterion criterion;
    criterion.split_ = std::move(function);
    return criterion;
  }

  // A criterion that sums over tokens, each with its own label. It can be computed from parts of the sequences, so it
  // supports context parallelism. `align` returns a batch of full sequences whose labels are aligned with the logits.
  // `of_aligned` is the criterion for such a batch, or for a part of its tokens. Outputs may be sharded over tp.
  using Align = std::function<TensorDict(const TensorDict& batch)>;
  static Criterion over_tokens(SplitFunction function, Align align, SplitFunction of_aligned) {
    Criterion criterion = on_split_outputs(std::move(function));
    criterion.align_ = std::move(align);
    criterion.of_aligned_ = std::move(of_aligned);
    return criterion;
  }
  // A criterion of whole sequences that supports context parallelism. `of_part` computes it from this rank's part of
  // each sequence; the ranks of `parts` have the other parts, and the losses that they return are added up.
  using PartFunction = std::function<Loss(const TensorDict& outputs, const TensorDict& batch, const SplitOutputs& split,
                                          ProcessGroup& parts)>;
  static Criterion over_sequences(SplitFunction function, PartFunction of_part) {
    Criterion criterion = on_split_outputs(std::move(function));
    criterion.of_part_ = std::move(of_part);
    return criterion;
  }

  bool accepts_parts() const { return of_aligned_ || of_part_; }  // parts of sequences
  TensorDict aligned(const TensorDict& batch) const { return align_ ? align_(batch) : batch; }
  // The criterion for this rank's part of aligned(). `parts`: the ranks with the parts of the same sequences; not
  // owned.
  Criterion of_part(ProcessGroup& parts) const {
    Criterion criterion =
        of_aligned_ ? on_split_outputs(of_aligned_)
                    : on_split_outputs([of_part = of_part_, &parts](const TensorDict& outputs, const TensorDict& batch,
                                                                    const SplitOutputs& split) {
                        return of_part(outputs, batch, split, parts);
                      });
    if (deferred_) criterion.deferred_ = deferred_->of_part(parts);
    criterion.logit_limit_ = logit_limit_;
    return criterion;
  }

  // The same criterion for the output "logits" of Gantry's models if it is not computed in full. Only criteria that
  // read nothing but the losses of its rows have this form. `labels`: the batch entry with one label per row.
  struct OfDeferredLogits {
    using Function = std::function<Loss(const nn::DeferredLogits& logits, const TensorDict& batch)>;
    std::string labels;
    Function of_sequences;
    std::function<Function(ProcessGroup& parts)> of_parts;  // see of_part()

    OfDeferredLogits of_part(ProcessGroup& parts) const { return {labels, of_parts(parts), {}}; }
  };
  Criterion with_deferred_logits(OfDeferredLogits form) && {
    deferred_ = std::move(form);
    return std::move(*this);
  }
  const std::optional<OfDeferredLogits>& deferred_logits() const { return deferred_; }
  // The largest size of the logits of a microbatch that are computed in full, and of a tile of larger ones, in bytes on
  // one rank. The default is 32 MB on the CPU and a 32nd of the memory of other devices. Throws UsageError for a size
  // below 1.
  void set_logit_limit(std::int64_t bytes);
  // Returns the limit that was set; empty: the default.
  const std::optional<std::int64_t>& logit_limit() const { return logit_limit_; }

  // Attaches the declarative form of this criterion.
  Criterion described_by(LabelledLoss loss) && {
    labelled_ = std::move(loss);
    return std::move(*this);
  }
  // The declarative form; empty if none was attached.
  const std::optional<LabelledLoss>& labelled() const { return labelled_; }
  // Sets a function that counts the labels of a batch of full sequences on the host. counted() is empty without it:
  // then the number is known only after the criterion has run.
  using Count = std::function<std::int64_t(const TensorDict& batch)>;
  void set_count(Count count) { count_ = std::move(count); }
  std::optional<std::int64_t> counted(const TensorDict& batch) const {
    return count_ ? std::optional(count_(batch)) : std::nullopt;
  }

  explicit operator bool() const { return function_ || split_; }
  bool accepts_split_outputs() const { return static_cast<bool>(split_); }
  Loss operator()(const TensorDict& outputs, const TensorDict& batch, const SplitOutputs& split) const {
    return split_ ? split_(outputs, batch, split) : function_(outputs, batch);
  }

 private:
  Function function_;
  SplitFunction split_, of_aligned_;
  Align align_;
  PartFunction of_part_;
  std::optional<LabelledLoss> labelled_;
  Count count_;
  std::optional<OfDeferredLogits> deferred_;
  std::optional<std::int64_t> logit_limit_;
};

// Cross entropy of outputs[logits] [..., V] with batch[labels] [...], which are aligned with the logits.
// Vocabulary-parallel if the policy declares the logits as sharded.
Criterion cross_entropy(const nn::CrossEntropyOptions& options = {}, const std::string& logits = "logits",
                        const std::string& labels = "labels");

// Causal cross entropy: the same with labels [B, S] that are not shifted (labels = input_ids, -100 for tokens that do
// not count) and logits [B, S, V]. The logits of a token are compared with the label of the next token, and the last
// token has no label. This is the convention of Hugging Face's causal language models.
Criterion causal_cross_entropy(const nn::CrossEntropyOptions& options = {}, const std::string& logits = "logits",
                               const std::string& labels = "labels");

// Mean squared error of outputs[logits] [..., n] and batch[labels], numbers of the same shape; without the last
// dimension if n is 1. Every number counts. Transformers computes it for problem_type: regression.
Criterion mean_squared_error(const std::string& logits = "logits", const std::string& labels = "labels");

// Binary cross entropy of outputs[logits] [..., n] and batch[labels] of the same shape, with the probability of each of
// n labels. Every number counts. Transformers computes it for problem_type: multi_label_classification.
Criterion binary_cross_entropy(const std::string& logits = "logits", const std::string& labels = "labels");

// Wraps a callable that returns the mean over the labels that are not ignore_index, like torch's cross_entropy. The
// result is weighted by the number of such labels in batch[labels], so it equals the result of a single device.
Criterion mean_over_labels(Criterion::Function mean, const std::string& labels = "labels",
                           std::int64_t ignore_index = -100);

// Loss of extractive question answering: outputs[logits] [B, S, 2] with batch[start_positions] and batch[end_positions]
// [B]. A position outside of the sequence is not counted.
Criterion answer_span_loss(const std::string& logits = "logits");

}  // namespace gantry
