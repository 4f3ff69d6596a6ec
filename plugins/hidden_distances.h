// The distances between the hidden states of a student and of its teacher.
#pragma once

#include "gantry/plugins/criterion.h"

namespace gantry {

// Returns [samples, tokens]: the mean of the squared differences over the last dimension of `teacher`
// [samples, tokens, size], in float32 at least. `student`: the output models::kHiddenStates, of which each rank has the
// columns that `split` states. The gradient of the teacher's states is not computed. Collective over the group of the
// output, if it is sharded.
torch::Tensor hidden_distances(const torch::Tensor& student, const torch::Tensor& teacher, const SplitOutputs& split);

}  // namespace gantry
