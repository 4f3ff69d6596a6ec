// The loss of distillation: a student learns the distribution of a teacher's next token.
#pragma once

#include <cstdint>
#include <memory>

#include "gantry/core/config.h"
#include "gantry/plugins/criterion.h"

namespace gantry {

// The entry of a batch that numbers its samples: int64 [samples], 0, 1, 2, ...
inline constexpr const char* kTeacherRows = "teacher_rows";

// The teacher's logits of the samples of one batch, on the ranks of the last stage.
struct TeacherLogits {
  torch::Tensor logits;      // [samples, tokens, vocabulary], this rank's part as the model returns it
  torch::Tensor hidden;      // [samples, tokens, hidden size], if the model returns hidden_states
  std::int64_t samples = 0;  // set it before the teacher runs
};

// A criterion that keeps the outputs of the teacher in `kept`, and returns a loss of 0. Boost the teacher with it. The
// batch has kTeacherRows.
Criterion keep_logits(std::shared_ptr<TeacherLogits> kept);

// The mean over the tokens that count of
//
//   alpha CE + (1 - alpha) D(teacher, student) + hidden_weight H(teacher, student).
//
// CE is the cross entropy of the labels. D compares the distributions of logits / temperature over the full vocabulary:
//
//   forward  temperature^2 KL(teacher || student)
//   reverse  temperature^2 KL(student || teacher)
//   jsd      beta KL(teacher || m) + (1 - beta) KL(student || m) with m = beta teacher + (1 - beta) student, the
//            generalized Jensen-Shannon divergence (Agarwal et al., arXiv 2306.13649)
//
// H is the mean of the squared differences between the student's output hidden_states and the teacher's, over their
// last dimension.
//
// With objective.top_k > 0 it is top_k_loss() (plugins/top_k_loss.h), and `teacher` is not read: a run adds the
// teacher's numbers to its batches. Otherwise the batch has labels that are aligned with the logits, and kTeacherRows.
// Supports logits that are sharded over tp, which are not gathered, and context parallelism. Throws UsageError if the
// logits of the teacher and of the student differ in shape; with hidden_weight also for their hidden_states, and if one
// of the models does not return them.
Criterion distillation_loss(const ObjectiveConfig& objective, const std::shared_ptr<const TeacherLogits>& teacher);

}  // namespace gantry
