#include "gantry/plugins/hidden_distances.h"

#include "gantry/models/hidden_states.h"
#include "gantry/nn/autograd_collectives.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {

torch::Tensor hidden_distances(const torch::Tensor& student, const torch::Tensor& teacher, const SplitOutputs& split) {
  const std::int64_t size = teacher.size(-1);
  const auto dim = split.find(models::kHiddenStates);
  const bool is_split = dim != split.end() && dim->second.placement.sharded();
  const auto wide = [](const torch::Tensor& states) {
    return states.to(at::promote_types(states.scalar_type(), torch::kFloat32));
  };
  const auto sum_of = [&](const torch::Tensor& of_teacher) {
    return (wide(student) - wide(of_teacher.detach())).square().sum(-1) / static_cast<double>(size);
  };
  if (!is_split) return sum_of(teacher);
  ProcessGroup& group = *dim->second.group;
  const Range columns = dim->second.placement.ranges(group.rank(), size).front();
  return reduce_from_group(sum_of(teacher.narrow(-1, columns.begin, columns.size())), group);
}

}  // namespace gantry
