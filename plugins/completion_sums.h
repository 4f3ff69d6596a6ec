// Log-probabilities of completions, summed over their tokens.
#pragma once

#include <functional>

#include "gantry/plugins/criterion.h"
#include "gantry/tensors/tensor.h"

namespace gantry {

// The columns are the completions of the documents kChosen and kRejected, or the only completion of a batch without
// document_ids. If the batch has prompt_labels, the full chosen text follows.
struct CompletionSums {
  torch::Tensor scores;  // [samples, columns] log-probabilities
  torch::Tensor tokens;  // [samples, columns] numbers of tokens, in the type of the scores
  torch::Tensor means() const { return scores / tokens; }
};

// `losses_of` returns the cross entropy of each token in the shape of the labels, which are aligned with the
// logits.
using TokenLossesOf = std::function<torch::Tensor(const torch::Tensor& labels)>;
CompletionSums completion_sums(const TokenLossesOf& losses_of, const TensorDict& batch);

// Sums over all parts of the sequences, given those of this rank's part. Gradients flow to this rank's part
// only.
CompletionSums over_parts(const CompletionSums& part, ProcessGroup& parts);

}  // namespace gantry
