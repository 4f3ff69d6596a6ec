// Cross entropy over logits that are whole or split over tp along the vocabulary, without gathering them.
#pragma once

#include <functional>

#include "gantry/comm/process_group.h"
#include "gantry/core/placement.h"
#include "gantry/tensors/batch.h"
#include "gantry/tensors/tensor.h"

namespace gantry {

// What a criterion returns: the sum over counted tokens, and how many were counted. A plain scalar mean converts: it
// then counts as one token per sample of the microbatch.
struct Loss {
  torch::Tensor sum;    // [] with a graph
  torch::Tensor count;  // [] int64, best on the CPU; undefined: `sum` is a mean over the microbatch
  Loss(torch::Tensor sum, torch::Tensor count) : sum(std::move(sum)), count(std::move(count)) {}
  Loss(torch::Tensor mean) : sum(std::move(mean)) {}  // NOLINT: a plain scalar is a loss
};

namespace nn {

struct CrossEntropyOptions {
  std::int64_t ignore_index = -100;
  double label_smoothing = 0;   // spread over the whole vocabulary
  double z_loss = 0;            // adds z_loss * log(sum of exponentials)^2 per token (PaLM, arXiv 2204.02311)
  std::int64_t vocabulary = 0;  // columns from here on are padding and count nowhere; 0: there are none
};

// logits [..., V local], labels int64 [...] -> sum and count. `vocabulary`: how the last dim lies over `group`
// (replicate() and any group of size 1 for whole logits). InputError for a label outside the vocabulary that is not
// ignore_index, where the host has the labels (tensors/host_copy.h); the count is then on the CPU. Collective over the
// group, forward only.
Loss cross_entropy(const torch::Tensor& logits, const torch::Tensor& labels, ProcessGroup& group,
                   const ShardSpec& vocabulary, const CrossEntropyOptions& options = {});

// The same of whole logits, without a group.
Loss cross_entropy(const torch::Tensor& logits, const torch::Tensor& labels, const CrossEntropyOptions& options = {});

}  // namespace nn
}  // namespace gantry
