// A head whose rows (words) lie over ranks, and its cross entropy, of one microbatch in passes, so that the ranks meet
// in between alone: Yeung et al., Balancing Pipeline Parallelism with Vocabulary Parallelism (arXiv 2411.05288), both
// algorithms. What a rank does alone is here; who communicates is the caller's affair.
//
// Algorithm 1: head_forward, the ranks' statistics meet, head_backward gives both gradients, and the input's parts are
// summed. Algorithm 2: head_forward also multiplies what the input's gradient needs, before anything is known of other
// ranks; once the statistics have met, head_input_part scales that, and head_backward may come any time later.
// The published algorithm 2 subtracts the label's row from the mean of all rows, and of a label that is near certain
// nothing is left of the difference in bfloat16. Here the label's row is left out of the product, and its own factor,
// the probability of all other words, is a sum: no difference of near numbers is taken.
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

// What a rank keeps between the passes.
struct HeadShare {
  torch::Tensor input;     // [rows, in]
  torch::Tensor logits;    // [rows, words held here], scaled and capped; undefined if they are larger than the limit
  torch::Tensor columns;   // [rows] int64: the label's column here, -1 where it is elsewhere or ignored
  torch::Tensor counted;   // [rows] bool
  std::int64_t width = 0;  // words that are no padding
  // [kHeadStatistics, rows]: the largest logit, the sum of exponentials less it, the label's logit, the sum of logits,
  // and, where the input's gradient has begun, the sum of exponentials without the label's.
  torch::Tensor statistics;
  // Where the input's gradient has begun, [rows, in]: rows of the weight by their exponentials, without the label's,
  // and, with smoothing, by what the slope of the cap is at them.
  torch::Tensor by_exponentials, by_slopes;
};

// What head_forward makes beside the logits.
enum class HeadWork { kStatistics, kInputGradient };

// The first pass. `labels` int64 [rows]; undefined: logits alone. kInputGradient: algorithm 2's.
HeadShare head_forward(const Linear& head, const torch::Tensor& input, const torch::Tensor& labels,
                       const SplitHeadOptions& options, HeadWork work = HeadWork::kStatistics);

// Of all ranks' statistics [ranks, kHeadStatistics, rows], summed by rank: [rows] each, of logits less the row's
// largest.
struct HeadTotals {
  torch::Tensor largest, total, label, all, others;
};
HeadTotals head_totals(const torch::Tensor& statistics);

// The sum over counted rows of the loss: the same number on every rank.
torch::Tensor head_loss(const HeadTotals& totals, const torch::Tensor& counted, std::int64_t words,
                        const CrossEntropyOptions& options);

// Algorithm 2's part [rows, in] of the input's gradient, which is the sum over the ranks; lets go of what the share
// kept for it. `seed`: of the loss's sum.
torch::Tensor head_input_part(const Linear& head, HeadShare& share, const HeadTotals& totals, double seed,
                              const SplitHeadOptions& options);

// The last pass: adds this rank's gradients of weight and bias. Algorithm 1's also gives the rank's part [rows, in] of
// the input's gradient, whose sum over the ranks it is.
torch::Tensor head_backward(const Linear& head, const HeadShare& share, const HeadTotals& totals, double seed,
                            const SplitHeadOptions& options);
void head_weight_backward(const Linear& head, const HeadShare& share, const HeadTotals& totals, double seed,
                          const SplitHeadOptions& options);

// The columns of the vocabulary that count.
std::int64_t counted_words(const Linear& head, const CrossEntropyOptions& options);

// InputError for a label outside the vocabulary that is not `ignored`. `known`: the labels' numbers on the host;
// undefined: the device checks them.
void check_labels(const torch::Tensor& labels, const torch::Tensor& known, std::int64_t vocabulary,
                  std::int64_t ignored, bool of_classes = false);

}  // namespace gantry::nn
