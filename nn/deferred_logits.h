// Logits that are too large to be stored: their head and its input, from which the losses of the rows and their
// gradients are computed in tiles of rows and columns. The backward computes each tile again, as in Cut Your Losses
// (Wijmans et al., arXiv 2411.09009).
#pragma once

#include <cstdint>

#include "gantry/nn/cross_entropy.h"
#include "gantry/nn/head_tiles.h"
#include "gantry/nn/linear.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry::nn {

struct DeferredLogits {
  // Set by the code that runs the forward (Forward::logits).
  std::int64_t rows = 0;   // number of labels
  std::int64_t limit = 0;  // largest number of bytes of a tensor of logits
  // Set by head_output() if the logits are larger.
  Linear head{nullptr};
  LogitForm form = {};
  // The input of the head, as it is before it is gathered. Set from the output "hidden" of the stage.
  torch::Tensor hidden = {};

  bool are_deferred() const { return !head.is_empty(); }
};

// Returns the output of the last stage: {logits}, or {hidden} if this forward defers its logits.
TensorDict head_output(const Linear& head, const torch::Tensor& hidden, const LogitForm& form = {});

// Returns the cross entropy of the head's output for `hidden`, with one label per row of the output. It is computed in
// tiles if this forward may defer its logits and if the output is larger. Collective like cross_entropy() below.
Loss head_cross_entropy(const Linear& head, const torch::Tensor& hidden, const torch::Tensor& labels,
                        const LogitForm& form = {});

// The same as for logits (nn/cross_entropy.h). Collective over the head's group, forward and backward. Weight gradients
// are computed with the gradient of the input.
Loss cross_entropy(const DeferredLogits& logits, const torch::Tensor& labels, const CrossEntropyOptions& options = {});
torch::Tensor token_losses(const DeferredLogits& logits, const torch::Tensor& labels,
                           const CrossEntropyOptions& options = {});

}  // namespace gantry::nn
