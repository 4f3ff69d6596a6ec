#include "gantry/core/config/expert_ranks.h"

#include <fmt/format.h>

namespace gantry {

std::optional<ErrorText> fault_of_experts(const ParallelConfig& parallel) {
  if (parallel.expert == 1) return std::nullopt;
  // Without sequence parallelism, all ranks of tp would send the same tokens.
  if (parallel.tensor > 1 && !parallel.sequence_parallel)
    return ErrorText{"parallel.expert",
                     fmt::format("expert {} with tensor {} needs sequence parallelism, because all tensor-parallel "
                                 "ranks have the same tokens otherwise",
                                 parallel.expert, parallel.tensor),
                     "parallel.sequence_parallel true",
                     "set parallel.sequence_parallel to true, or parallel.tensor to 1"};
  return std::nullopt;
}

}  // namespace gantry
