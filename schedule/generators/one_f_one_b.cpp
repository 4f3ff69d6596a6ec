// 1F1B, PipeDream-flush (Narayanan et al., arXiv 2006.09503; Megatron-LM, arXiv 2104.04473): a rank first runs one
// forward for each rank after it, then alternates one forward and one backward, so that it holds at most p - rank
// activations.
#include <algorithm>

#include "gantry/schedule/generators/generator.h"

namespace gantry::schedule {
namespace {

std::vector<Action> make_row(int rank, const PipelineSizes& sizes) {
  const int microbatches = sizes.microbatches;
  const int warmup = std::min(sizes.ranks - rank - 1, microbatches);
  std::vector<Action> row;
  int backward = 0;
  for (int forward = 0; forward < microbatches; ++forward) {
    row.push_back({ActionKind::kForward, rank, forward});
    if (forward >= warmup) row.push_back({ActionKind::kBackward, rank, backward++});
  }
  while (backward < microbatches) row.push_back({ActionKind::kBackward, rank, backward++});
  return row;
}

Schedule make_one_f_one_b(const PipelineSizes& sizes, const GeneratorOptions&) {
  Schedule schedule = empty_schedule("1f1b", sizes);
  for (int rank = 0; rank < sizes.ranks; ++rank) schedule.actions[rank] = make_row(rank, sizes);
  return schedule;
}

}  // namespace

Generator one_f_one_b() { return {.name = "1f1b", .make = make_one_f_one_b}; }

}  // namespace gantry::schedule
