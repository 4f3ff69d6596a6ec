// How a loss is computed from the last stage's outputs and the microbatch.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "gantry/nn/cross_entropy.h"

namespace gantry {

// Outputs whose last dim is split over tp: over which group and how.
struct SplitDim {
  ProcessGroup* group = nullptr;
  ShardSpec placement;
};
using SplitOutputs = std::map<std::string, SplitDim>;

// A cross entropy of one output, as data: what can be computed without the whole output on any rank.
struct LabelledLoss {
  nn::CrossEntropyOptions options;
  std::string logits, labels;                                       // of the outputs, and of the batch
  std::function<torch::Tensor(const torch::Tensor& labels)> align;  // puts labels beside what they are compared with
};

class Criterion {
 public:
  using Function = std::function<Loss(const TensorDict& outputs, const TensorDict& batch)>;
  using SplitFunction =
      std::function<Loss(const TensorDict& outputs, const TensorDict& batch, const SplitOutputs& split)>;

  Criterion() = default;  // none: forwards only

  // Any callable of (outputs, batch) that returns a Loss{sum, count} or a scalar mean. It sees whole outputs. A mean is
  // taken for one over the microbatch's samples, each of which weighs the same: microbatches and replicas weigh by
  // their samples. A mean over tokens or labels is that only where every sample has as many, so one beside ignored
  // labels (-100) in the batch is a UsageError; see mean_over_labels.
  template <class F>
  requires std::is_invocable_r_v<Loss, F, const TensorDict&, const TensorDict&> Criterion(F function)
      : whole_(std::move(function)) {}  // NOLINT: a callable is a criterion

  // One that can work on outputs that are split over tp.
  static Criterion on_split_outputs(SplitFunction function) {
    Criterion criterion;
    criterion.split_ = std::move(function);
    return criterion;
  }

  // A sum over tokens, each compared with a label of its own: right too of a part of the tokens, where ranks share
  // sequences. `align` gives a batch of whole sequences whose labels stand beside what they are compared with, and
  // `of_aligned` is the criterion of such a batch or of a part of its tokens. Outputs may be split over tp.
  using Align = std::function<TensorDict(const TensorDict& batch)>;
  static Criterion over_tokens(SplitFunction function, Align align, SplitFunction of_aligned) {
    Criterion criterion = on_split_outputs(std::move(function));
    criterion.align_ = std::move(align);
    criterion.of_aligned_ = std::move(of_aligned);
    return criterion;
  }
  bool is_over_tokens() const { return static_cast<bool>(of_aligned_); }
  TensorDict aligned(const TensorDict& batch) const { return align_(batch); }
  Criterion of_aligned() const { return on_split_outputs(of_aligned_); }

  // That it is this loss.
  Criterion described_by(LabelledLoss loss) && {
    labelled_ = std::move(loss);
    return std::move(*this);
  }
  // Absent where nobody has said so.
  const std::optional<LabelledLoss>& labelled() const { return labelled_; }
  // How many labels it will count in a batch of whole sequences, read on the host; absent where that is not known
  // before it is called.
  using Count = std::function<std::int64_t(const TensorDict& batch)>;
  void set_count(Count count) { count_ = std::move(count); }
  std::optional<std::int64_t> counted(const TensorDict& batch) const {
    return count_ ? std::optional(count_(batch)) : std::nullopt;
  }

  explicit operator bool() const { return whole_ || split_; }
  bool accepts_split_outputs() const { return static_cast<bool>(split_); }
  Loss operator()(const TensorDict& outputs, const TensorDict& batch, const SplitOutputs& split) const {
    return split_ ? split_(outputs, batch, split) : whole_(outputs, batch);
  }

 private:
  Function whole_;
  SplitFunction split_, of_aligned_;
  Align align_;
  std::optional<LabelledLoss> labelled_;
  Count count_;
};

// Cross entropy of outputs[logits] [..., V] against batch[labels] [...], aligned with the logits; vocabulary-parallel
// where the policy says that the logits come split.
Criterion cross_entropy(const nn::CrossEntropyOptions& options = {}, const std::string& logits = "logits",
                        const std::string& labels = "labels");

// The same for labels that are not shifted yet (labels = input_ids, -100 where nothing counts), [B, S] against logits
// [B, S, V]: the logits of a token are compared with the label of the next one, and the last token has none. What other
// systems' causal models do with labels that they are given.
Criterion causal_cross_entropy(const nn::CrossEntropyOptions& options = {}, const std::string& logits = "logits",
                               const std::string& labels = "labels");

// Of a callable that returns the mean over the labels that are not ignore_index, as torch's cross_entropy does: told
// how many count in batch[labels], microbatches and replicas weigh by them, and the numbers are one device's.
Criterion mean_over_labels(Criterion::Function mean, const std::string& labels = "labels",
                           std::int64_t ignore_index = -100);

// Where the answer to a question starts and ends: outputs[logits] [B, S, 2] against batch[start_positions] and
// batch[end_positions] [B]. A position outside the sequence is not counted.
Criterion answer_span_loss(const std::string& logits = "logits");

}  // namespace gantry
