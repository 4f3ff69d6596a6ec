// GPipe (Huang et al., arXiv 1811.06965): all forwards, then all backwards, each in the order of the microbatches.
#include "gantry/schedule/generators/generator.h"

namespace gantry::schedule {
namespace {

Schedule make_gpipe(const PipelineSizes& sizes, const GeneratorOptions&) {
  Schedule schedule = empty_schedule("gpipe", sizes);
  for (int rank = 0; rank < sizes.ranks; ++rank)
    for (const auto kind : {ActionKind::kForward, ActionKind::kBackward})
      for (int microbatch = 0; microbatch < sizes.microbatches; ++microbatch)
        schedule.actions[rank].push_back({kind, rank, microbatch});
  return schedule;
}

}  // namespace

Generator gpipe() { return {.name = "gpipe", .make = make_gpipe}; }

}  // namespace gantry::schedule
