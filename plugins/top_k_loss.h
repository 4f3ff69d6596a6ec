// The loss of distillation from the teacher's largest log-probabilities.
#pragma once

#include "gantry/plugins/criterion.h"

namespace gantry {

// The entry of a batch with the teacher's largest log-probabilities of each token, [samples, tokens, 2 k]: see packed()
// in top_tokens.h.
inline constexpr const char* kTeacherTops = "teacher_tops";

// KL(teacher || student) of each row of `logits` [rows, columns] divided by `temperature`, as [rows], in float32 or
// wider. The teacher's distribution has the tokens `tokens` [rows, k] alone, with the probabilities
// softmax(logs / temperature). The student's has all columns. `split`: the ranks with the other columns; null: none.
// Gradients flow to the logits only. The forward has two reductions over the group, the backward none.
torch::Tensor top_k_divergences(const torch::Tensor& logits, const torch::Tensor& tokens, const torch::Tensor& logs,
                                const SplitDim* split, double temperature);

// The mean over the tokens that count of alpha CE + (1 - alpha) temperature^2 KL; the batch has labels that are aligned
// with the logits, and kTeacherTops. Supports logits that are sharded over tp, and context parallelism. Throws
// UsageError if the entry does not fit the logits.
Criterion top_k_loss(double alpha, double temperature);

}  // namespace gantry
