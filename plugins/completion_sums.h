// Log-probabilities of completions, summed over their tokens.
#pragma once

#include "gantry/plugins/criterion.h"
#include "gantry/tensors/tensor.h"

namespace gantry {

// The columns are the completions of the documents kChosen and kRejected, or the only completion of a batch without
// document_ids. If the batch has prompt_labels, the full chosen text follows.
struct CompletionSums {
  torch::Tensor scores;  // [samples, columns] log-probabilities
  torch::Tensor tokens;  // [samples, columns] their numbers, in the type of the scores
  torch::Tensor means() const { return scores / tokens; }
};

// From logits and labels that are aligned with them.
CompletionSums completion_sums(const TensorDict& outputs, const TensorDict& batch, const SplitOutputs& split);

// The sums over all parts of the sequences from those of this rank's part. Gradients flow to this rank's part.
CompletionSums over_parts(const CompletionSums& part, ProcessGroup& parts);

}  // namespace gantry
