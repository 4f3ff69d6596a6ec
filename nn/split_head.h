// A head whose rows (words) lie over ranks, and its cross entropy, of one microbatch in two passes, so that the ranks
// meet in between alone: Yeung et al., Balancing Pipeline Parallelism with Vocabulary Parallelism (arXiv 2411.05288),
// algorithm 1. What a rank does alone is here; who communicates is the caller's affair.
#pragma once

#include <cstdint>

#include "gantry/nn/cross_entropy.h"
#include "gantry/nn/linear.h"

namespace gantry::nn {

// Logits z = soft_cap * tanh(scale * (W x + b) / soft_cap), without the cap where it is 0.
struct SplitHeadOptions {
  double scale = 1;
  double soft_cap = 0;
  CrossEntropyOptions loss;
};

// What a rank keeps between the passes.
struct HeadShare {
  torch::Tensor input;       // [rows, in]
  torch::Tensor logits;      // [rows, words held here], scaled and capped
  torch::Tensor columns;     // [rows] int64: the label's column here, -1 where it is elsewhere or ignored
  torch::Tensor counted;     // [rows] bool
  std::int64_t width = 0;    // words that are no padding
  torch::Tensor statistics;  // [4, rows]: the largest logit, the sum of exponentials less it, the label's, their sum
};

// The first pass. `labels` int64 [rows]; undefined: logits alone.
HeadShare head_forward(const Linear& head, const torch::Tensor& input, const torch::Tensor& labels,
                       const SplitHeadOptions& options);

// Of all ranks' statistics [ranks, 4, rows], summed by rank: [rows] each, of logits less the row's largest.
struct HeadTotals {
  torch::Tensor largest, total, label, all;
};
HeadTotals head_totals(const torch::Tensor& statistics);

// The sum over counted rows of the loss: the same number on every rank.
torch::Tensor head_loss(const HeadTotals& totals, const torch::Tensor& counted, std::int64_t words,
                        const CrossEntropyOptions& options);

// The second pass: adds this rank's gradients of weight and bias, and gives its part [rows, in] of the input's, whose
// sum over the ranks it is. `seed`: of the loss's sum.
torch::Tensor head_backward(const Linear& head, const HeadShare& share, const HeadTotals& totals, double seed,
                            const SplitHeadOptions& options);

// The columns of the vocabulary that count.
std::int64_t counted_words(const Linear& head, const CrossEntropyOptions& options);

// InputError for a label outside the vocabulary that is not `ignored`. Of labels on the CPU.
void check_labels(const torch::Tensor& given, std::int64_t vocabulary, std::int64_t ignored);

}  // namespace gantry::nn
