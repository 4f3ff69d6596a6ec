// Breadth-first (Lamy-Poirier, arXiv 2211.05953; PyTorch's LoopedBFS): all microbatches pass through a rank's first
// chunk, then through the next one. Backwards run in reverse order, the last microbatch first.
#include "gantry/schedule/generators/generator.h"

namespace gantry::schedule {
namespace {

Schedule make_breadth_first(const PipelineSizes& sizes, const GeneratorOptions&) {
  Schedule schedule = empty_schedule("breadth_first", sizes);
  for (int rank = 0; rank < sizes.ranks; ++rank) {
    auto& row = schedule.actions[rank];
    for (int chunk = 0; chunk < sizes.chunks; ++chunk)
      for (int microbatch = 0; microbatch < sizes.microbatches; ++microbatch)
        row.push_back({ActionKind::kForward, chunk * sizes.ranks + rank, microbatch});
    for (int chunk = sizes.chunks; chunk-- > 0;)
      for (int microbatch = sizes.microbatches; microbatch-- > 0;)
        row.push_back({ActionKind::kBackward, chunk * sizes.ranks + rank, microbatch});
  }
  return schedule;
}

}  // namespace

Generator breadth_first() { return {.name = "breadth_first", .max_chunks = 1000, .make = make_breadth_first}; }

}  // namespace gantry::schedule
