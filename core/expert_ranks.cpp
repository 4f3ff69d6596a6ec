#include "gantry/core/expert_ranks.h"

#include <fmt/format.h>

namespace gantry {

std::optional<ErrorText> fault_of_experts(const ParallelConfig& parallel) {
  if (parallel.expert == 1) return std::nullopt;
  // Else all ranks of tp would send the same tokens.
  if (parallel.tensor > 1 && !parallel.sequence_parallel)
    return ErrorText{
        "parallel.expert",
        fmt::format("is {} with tensor {}, whose ranks have the same tokens", parallel.expert, parallel.tensor),
        "parallel.sequence_parallel true, so that each has its own",
        "set parallel.sequence_parallel to true, or tensor to 1"};
  return std::nullopt;
}

}  // namespace gantry
