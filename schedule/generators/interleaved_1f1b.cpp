// Interleaved 1F1B (Narayanan et al., arXiv 2104.04473; Megatron-LM's order): the chunks of a rank take turns in groups
// of microbatches (Megatron's microbatch_group_size_per_vp_stage), which divides the bubble by the number of chunks.
// The last group may be smaller: the sizes need not divide evenly.
#include <algorithm>
#include <fmt/format.h>

#include "gantry/core/error.h"
#include "gantry/schedule/generators/generator.h"
#include "gantry/schedule/validate.h"

namespace gantry::schedule {
namespace {

struct Turn {
  int chunk = 0;
  int microbatch = 0;
};

// The forwards of every rank in order: groups of microbatches, each through all chunks.
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

Schedule with_warmup(const PipelineSizes& sizes, int group, const std::vector<Turn>& turns, int more) {
  Schedule schedule = empty_schedule("interleaved_1f1b", sizes);
  for (int rank = 0; rank < sizes.ranks; ++rank) {
    const int behind = sizes.ranks - rank - 1;
    const int warmup = sizes.chunks == 1 ? behind : 2 * behind + (sizes.chunks - 1) * group;
    schedule.actions[rank] = make_row(rank, sizes, turns, warmup + more);
  }
  return schedule;
}

bool is_valid(const Schedule& schedule) {
  try {
    validate(schedule);
    return true;
  } catch (const ConfigError&) {
    return false;
  }
}

// Whether the sizes allow Megatron-LM's order; it is then always valid.
bool is_megatrons(const PipelineSizes& sizes, int group) {
  const int last = sizes.microbatches % group;
  return sizes.chunks == 1 || last == 0 || last >= sizes.ranks;
}

int group_of(const PipelineSizes& sizes, const GeneratorOptions& options) {
  if (options.group_size == 0) return sizes.ranks;
  if (options.group_size < sizes.ranks)
    throw ConfigError({"schedule interleaved_1f1b", fmt::format("a group size of {} microbatches", options.group_size),
                       fmt::format("at least the {} ranks", sizes.ranks),
                       "use a larger group: with a smaller one, a chunk's turn would end before its first microbatch "
                       "has passed through all ranks"});
  return options.group_size;
}

Schedule make_interleaved(const PipelineSizes& sizes, const GeneratorOptions& options) {
  const int group = group_of(sizes, options);
  const auto turns = forward_turns(sizes, group);
  // A last group that is smaller than the number of ranks may need more forwards ahead; running all of them ahead is
  // always valid.
  for (int more = 0;; ++more) {
    Schedule schedule = with_warmup(sizes, group, turns, more);
    if (is_megatrons(sizes, group) || more >= static_cast<int>(turns.size()) || is_valid(schedule)) return schedule;
  }
}

}  // namespace

Generator interleaved_one_f_one_b() {
  return {.name = "interleaved_1f1b", .max_chunks = 1000, .takes_group_size = true, .make = make_interleaved};
}

}  // namespace gantry::schedule
