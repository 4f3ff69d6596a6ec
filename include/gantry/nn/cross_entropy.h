// Cross entropy of logits that are full, or sharded over tp along the vocabulary; sharded logits are not gathered.
#pragma once

#include <functional>

#include "gantry/comm/process_group.h"
#include "gantry/core/placement.h"
#include "gantry/tensors/batch.h"
#include "gantry/tensors/tensor.h"

namespace gantry {

// The result of a criterion: the sum over the counted tokens and their number. A scalar mean converts to it; it counts
// as one token per sample of the microbatch.
struct Loss {
  torch::Tensor sum;    // scalar with an autograd graph
  torch::Tensor count;  // scalar int64, preferably on the CPU; undefined: `sum` is a mean over the microbatch
  Loss(torch::Tensor sum, torch::Tensor count) : sum(std::move(sum)), count(std::move(count)) {}
  Loss(torch::Tensor mean) : sum(std::move(mean)) {}  // NOLINT: allows a scalar as a loss
};

namespace nn {

struct CrossEntropyOptions {
  std::int64_t ignore_index = -100;
  double label_smoothing = 0;   // label smoothing over the full vocabulary
  double z_loss = 0;            // adds z_loss * log(sum of exponentials)^2 per token (PaLM, arXiv 2204.02311)
  bool of_classes = false;      // labels are classes and not tokens; for errors
  std::int64_t vocabulary = 0;  // columns from this index on are padding and are ignored; 0: no padding
};

// logits [..., local V], labels int64 [...] -> sum and count. `vocabulary`: how the last dimension is sharded over
// `group` (replicate() for full logits). If the labels are on the host too, throws InputError for a
// label that is neither in the vocabulary nor ignore_index, and the count is on the CPU. Throws UsageError if the
// logits have another size than this rank's part. Collective over the group, forward only.
Loss cross_entropy(const torch::Tensor& logits, const torch::Tensor& labels, ProcessGroup& group,
                   const ShardSpec& vocabulary, const CrossEntropyOptions& options = {});

// The same for full logits, without a group.
Loss cross_entropy(const torch::Tensor& logits, const torch::Tensor& labels, const CrossEntropyOptions& options = {});

// The loss of each token, in the shape of the labels; 0 for tokens that do not count. The rest is as above.
torch::Tensor token_losses(const torch::Tensor& logits, const torch::Tensor& labels, ProcessGroup& group,
                           const ShardSpec& vocabulary, const CrossEntropyOptions& options = {});
torch::Tensor token_losses(const torch::Tensor& logits, const torch::Tensor& labels,
                           const CrossEntropyOptions& options = {});

}  // namespace nn
}  // namespace gantry
