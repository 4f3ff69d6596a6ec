#include "gantry/nn/recurrence.h"

#include <vector>

#include "gantry/tensors/libtorch.h"

namespace gantry::nn {

torch::Tensor groups_of_heads(const torch::Tensor& groups, std::int64_t first, std::int64_t count,
                              std::int64_t per_group) {
  const std::int64_t held = groups.size(2);
  std::vector<std::int64_t> read;
  bool is_even = count % held == 0;
  for (std::int64_t head = 0; head < count; ++head) {
    read.push_back((first + head) / per_group - first / per_group);
    is_even = is_even && read.back() == head / (count / held);
  }
  return is_even ? groups : groups.index_select(2, torch::tensor(read, torch::kInt64).to(groups.device()));
}

}  // namespace gantry::nn
