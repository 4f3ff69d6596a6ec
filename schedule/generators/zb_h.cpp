// ZB-H1 and ZB-H2, the handcrafted zero-bubble schedules (Qi et al., arXiv 2401.10241): the backward is split, and
// weight gradients, which no rank waits for, fill the bubble. H1 has the memory of 1F1B; H2 runs about twice as many
// forwards ahead and leaves no bubble within a rank.
#include <algorithm>

#include "gantry/schedule/generators/generator.h"

namespace gantry::schedule {
namespace {

// `ahead` forwards, then in turn: an input gradient, the weight gradient of the microbatch `delay` positions before, a
// forward.
std::vector<Action> make_row(int rank, int microbatches, int ahead, int delay) {
  std::vector<Action> row;
  int forward = 0, weight = 0;
  auto add = [&](ActionKind kind, int microbatch) { row.push_back({kind, rank, microbatch}); };
  while (forward < std::min(ahead, microbatches)) add(ActionKind::kForward, forward++);
  for (int backward = 0; backward < microbatches; ++backward) {
    add(ActionKind::kInputGradient, backward);
    if (backward >= delay) add(ActionKind::kWeightGradient, weight++);
    if (forward < microbatches) add(ActionKind::kForward, forward++);
  }
  while (weight < microbatches) add(ActionKind::kWeightGradient, weight++);
  return row;
}

Schedule make_zb_h1(const PipelineSizes& sizes, const GeneratorOptions&) {
  Schedule schedule = empty_schedule("zb_h1", sizes);
  for (int rank = 0; rank < sizes.ranks; ++rank)
    schedule.actions[rank] = make_row(rank, sizes.microbatches, sizes.ranks - rank, rank);
  return schedule;
}

Schedule make_zb_h2(const PipelineSizes& sizes, const GeneratorOptions&) {
  Schedule schedule = empty_schedule("zb_h2", sizes);
  for (int rank = 0; rank < sizes.ranks; ++rank)
    schedule.actions[rank] = make_row(rank, sizes.microbatches, 2 * (sizes.ranks - rank) - 1, 2 * rank);
  return schedule;
}

}  // namespace

Generator zb_h1() { return {.name = "zb_h1", .make = make_zb_h1}; }
Generator zb_h2() { return {.name = "zb_h2", .make = make_zb_h2}; }

}  // namespace gantry::schedule
