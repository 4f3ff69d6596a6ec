// Interleaved 1F1B (Narayanan et al., arXiv 2104.04473; Megatron-LM's order): a rank's chunks take turns in groups of
// microbatches, so that the bubble shrinks by the number of chunks. The last group may be smaller: the order has no
// need of divisibility.
#include <algorithm>

#include "gantry/core/error.h"
#include "gantry/schedule/generators/generator.h"
#include "gantry/schedule/validate.h"

namespace gantry::schedule {
namespace {

struct Turn {
  int chunk = 0;
  int microbatch = 0;
};

// The forwards of every rank, in their order: groups of microbatches, each through all chunks.
std::vector<Turn> forward_turns(const PipelineSizes& sizes, int group) {
  std::vector<Turn> turns;
  for (int start = 0; start < sizes.microbatches; start += group)
    for (int chunk = 0; chunk < sizes.chunks; ++chunk)
      for (int i = start; i < std::min(start + group, sizes.microbatches); ++i) turns.push_back({chunk, i});
  return turns;
}

std::vector<Action> make_row(int rank, const PipelineSizes& sizes, const std::vector<Turn>& turns, int warmup) {
  const int total = static_cast<int>(turns.size());
  std::vector<Action> row;
  int backward = 0;
  auto add_backward = [&] {
    const Turn& turn = turns[backward++];
    row.push_back({ActionKind::kBackward, (sizes.chunks - 1 - turn.chunk) * sizes.ranks + rank, turn.microbatch});
  };
  for (int forward = 0; forward < total; ++forward) {
    row.push_back({ActionKind::kForward, turns[forward].chunk * sizes.ranks + rank, turns[forward].microbatch});
    if (forward >= warmup) add_backward();
  }
  while (backward < total) add_backward();
  return row;
}

Schedule make_interleaved(const PipelineSizes& sizes, const GeneratorOptions&) {
  const int group = sizes.ranks;
  const auto turns = forward_turns(sizes, group);
  const int total = static_cast<int>(turns.size());
  Schedule schedule = empty_schedule("interleaved_1f1b", sizes);
  // A last group that is smaller may need more forwards ahead; all of them always do.
  for (int more = 0;; ++more) {
    bool all_ahead = true;
    for (int rank = 0; rank < sizes.ranks; ++rank) {
      const int warmup = (sizes.ranks - rank - 1) * 2 + (sizes.chunks - 1) * group + more;
      all_ahead = all_ahead && warmup >= total;
      schedule.actions[rank] = make_row(rank, sizes, turns, sizes.chunks == 1 ? sizes.ranks - rank - 1 + more : warmup);
    }
    if (all_ahead || sizes.chunks == 1 || sizes.microbatches % group == 0) return schedule;
    try {
      validate(schedule);
      return schedule;
    } catch (const ConfigError&) {
    }
  }
}

}  // namespace

Generator interleaved_one_f_one_b() {
  return {.name = "interleaved_1f1b", .max_chunks = 1000, .make = make_interleaved};
}

}  // namespace gantry::schedule
