// An output layer whose rows (words) are sharded over ranks, and its cross entropy, for one microbatch. It is
// computed in passes, so that the ranks communicate only between them: both algorithms of Yeung et al.,
// Balancing Pipeline Parallelism with Vocabulary Parallelism (arXiv 2411.05288). These functions compute the
// passes of one rank. The caller does the communication.
//
// Algorithm 1: after head_forward(), the ranks exchange their statistics. head_backward() computes both
// gradients, and the parts of the input gradient are summed over the ranks. Algorithm 2: head_forward() also
// computes the products for the input gradient, before the statistics of other ranks are known. After the
// exchange of the statistics, head_input_part() scales these products, and head_weight_backward() can run at
// any later time.
//
// The published algorithm 2 subtracts the label's row from the mean of all rows. For a label that is almost
// certain, nothing is left of this difference in bfloat16. Here, the product leaves out the label's row. The
// factor of this row is the probability of all other words, which is computed as a sum. So no difference of
// almost equal numbers occurs.
#pragma once

#include <cstdint>

#include "gantry/core/config/logit_limit.h"
#include "gantry/nn/cross_entropy.h"
#include "gantry/nn/head_tiles.h"
#include "gantry/nn/linear.h"

namespace gantry::nn {

struct SplitHeadOptions {
  LogitForm form;
  CrossEntropyOptions loss;
  std::int64_t limit = kLogitLimit;  // largest number of bytes of a tensor of logits, if there are labels
};

inline constexpr std::int64_t kHeadStatistics = 5;

// The state of a rank between the passes.
struct HeadShare {
  torch::Tensor input;     // [rows, in]
  torch::Tensor logits;    // [rows, words held here], scaled and capped; undefined if they are larger than the limit
  torch::Tensor columns;   // [rows] int64: the label's column on this rank; -1: on another rank, or ignored
  torch::Tensor counted;   // [rows] bool
  std::int64_t width = 0;  // number of words that are not padding
  // [kHeadStatistics, rows]: the largest logit, the sum of exponentials of logits minus it, the label's
  // logit, the sum of logits, and, with HeadWork::kInputGradient, the sum of exponentials without the
  // label's.
  torch::Tensor statistics;
  // With HeadWork::kInputGradient, [rows, in]: the products of the weight's rows with their exponentials,
  // without the label's, and, with label smoothing, with the slopes of the soft cap.
  torch::Tensor by_exponentials, by_slopes;
};

// The results of head_forward() in addition to the logits.
enum class HeadWork { kStatistics, kInputGradient };

// The first pass. `labels` int64 [rows]; undefined: only the logits are computed. kInputGradient: for
// algorithm 2.
HeadShare head_forward(const Linear& head, const torch::Tensor& input, const torch::Tensor& labels,
                       const SplitHeadOptions& options, HeadWork work = HeadWork::kStatistics);

// Totals of all ranks' statistics, [rows] each, added in rank order. `total` and `others` are sums of
// exponentials of logits minus `largest`, the row's largest logit.
struct HeadTotals {
  torch::Tensor largest, total, label, all, others;
};
// `statistics`: [ranks, kHeadStatistics, rows].
HeadTotals head_totals(const torch::Tensor& statistics);

// Returns the sum of the loss over counted rows, which is the same on every rank.
torch::Tensor head_loss(const HeadTotals& totals, const torch::Tensor& counted, std::int64_t words,
                        const CrossEntropyOptions& options);

// For algorithm 2: returns this rank's part [rows, in] of the input gradient, which is the sum of the parts
// of all ranks. Releases the products in `share`. `seed`: the gradient of the sum of the loss.
torch::Tensor head_input_part(const Linear& head, HeadShare& share, const HeadTotals& totals, double seed,
                              const SplitHeadOptions& options);

// The last pass: adds this rank's gradients of weight and bias. For algorithm 1, head_backward() also returns
// this rank's part [rows, in] of the input gradient, which is the sum of the parts of all ranks.
torch::Tensor head_backward(const Linear& head, const HeadShare& share, const HeadTotals& totals, double seed,
                            const SplitHeadOptions& options);
void head_weight_backward(const Linear& head, const HeadShare& share, const HeadTotals& totals, double seed,
                          const SplitHeadOptions& options);

// The number of columns of the vocabulary that count.
std::int64_t counted_words(const Linear& head, const CrossEntropyOptions& options);

// Throws InputError if a label that is not `ignored` is outside the vocabulary. `known`: the labels on the
// host; undefined: the device checks them.
void check_labels(const torch::Tensor& labels, const torch::Tensor& known, std::int64_t vocabulary,
                  std::int64_t ignored, bool of_classes = false);

}  // namespace gantry::nn
