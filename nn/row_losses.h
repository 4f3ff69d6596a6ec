// The cross entropy of rows of logits, from their sums over the columns of all ranks.
#pragma once

#include "gantry/nn/cross_entropy.h"

namespace gantry::nn {

// The settings of the loss.
struct LossTerms {
  ProcessGroup* group = nullptr;  // null: full logits
  std::int64_t first = 0;         // column of the global vocabulary that is column 0 here
  std::int64_t vocabulary = 0;    // number of columns that count, over all ranks
  std::int64_t ignored = 0;
  double smoothing = 0;
  double z_loss = 0;
};

// The columns of one rank.
struct HeldColumns {
  ProcessGroup* group = nullptr;  // as in LossTerms
  std::int64_t first = 0;
  std::int64_t all = 0;  // number of columns of all ranks
};
LossTerms loss_terms(const HeldColumns& held, const CrossEntropyOptions& options);

// The labels of rows of logits.
struct RowLabels {
  torch::Tensor flat;   // int64 [rows]
  torch::Tensor count;  // number of labels that count; on the CPU if the labels are on the host too
};
// Throws UsageError unless the labels are integers, one per row. Throws InputError for a label outside the vocabulary.
RowLabels row_labels(const torch::Tensor& labels, std::int64_t rows, const LossTerms& terms,
                     const CrossEntropyOptions& options);

// [rows] int64: the column of each label among the first `width` columns of this rank, -1 for labels that are not
// there.
torch::Tensor label_columns(const torch::Tensor& labels, const torch::Tensor& counted, std::int64_t first,
                            std::int64_t width);

// `sums` [3, rows], over the columns of all ranks, from the differences between logits and the row's
// `largest` one: the sum of their exponentials, the label's difference, and with smoothing the sum of the
// differences.
struct RowLosses {
  torch::Tensor losses;  // [rows]; 0 for rows that do not count
  torch::Tensor weight;  // [rows], factor of the probabilities in the gradient; undefined: 1
};
RowLosses row_losses(const torch::Tensor& sums, const torch::Tensor& largest, const torch::Tensor& counted,
                     const LossTerms& terms);

// The losses [rows] of a batch, and the number of labels that count.
struct CountedLosses {
  torch::Tensor losses, count;

  Loss sum() const { return Loss(losses.sum(), count); }
};

}  // namespace gantry::nn
