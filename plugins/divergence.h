// Divergences of two distributions over a vocabulary that may be sharded over ranks.
#pragma once

#include <string>

#include "gantry/comm/process_group.h"
#include "gantry/tensors/tensor.h"

namespace gantry {

struct DivergenceKind {
  std::string name;  // forward: KL(teacher || student); reverse: KL(student || teacher); jsd
  double beta = 0;   // jsd: weight of the teacher in the mixture
  double temperature = 1;
};

// The logits divided by the temperature, in float32 or wider.
torch::Tensor scaled_logits(const torch::Tensor& logits, double temperature);

// The divergence of each row of logits [rows, columns], as [rows], in float32 or wider. `group`: ranks with
// the other columns; null: none. Gradients flow to the student only. The forward has three reductions over
// the group, the backward none.
torch::Tensor divergences(const torch::Tensor& student, const torch::Tensor& teacher, ProcessGroup* group,
                          const DivergenceKind& kind);

}  // namespace gantry
