#include "gantry/schedule/generators/squeezed_blocks.h"

#include <array>
#include <vector>

#include "gantry/schedule/generators/block_grid.h"

namespace gantry::schedule {
namespace {

// Weight gradients go to idle slots, those of the far chunk first.
std::vector<Action> row_of(const std::vector<int>& slots, int near, int far) {
  std::vector<Action> row;
  std::array<int, kVLegs> next{};
  std::array<int, 2> waiting{}, weights{};  // weight gradients of the far chunk, of the near one
  auto add_weight = [&] {
    const int chunk = waiting[0] > 0 ? 0 : 1;
    if (waiting[chunk] == 0) return false;
    --waiting[chunk];
    row.push_back({ActionKind::kWeightGradient, chunk == 0 ? far : near, weights[chunk]++});
    return true;
  };
  for (const int leg : slots) {
    if (leg == kIdleSlot) {
      add_weight();
      continue;
    }
    const int stage = is_near_leg(leg) ? near : far;
    row.push_back({is_forward_leg(leg) ? ActionKind::kForward : ActionKind::kInputGradient, stage, next[leg]++});
    if (is_backward_leg(leg)) ++waiting[leg - kBackwardDown];
  }
  while (add_weight()) {
  }
  return row;
}

std::vector<Action> row_of_full_backwards(const std::vector<int>& slots, int near, int far) {
  std::vector<Action> row;
  std::array<int, kVLegs> next{};
  for (const int leg : slots)
    if (leg != kIdleSlot && leg != kWeightSlot)
      row.push_back({is_forward_leg(leg) ? ActionKind::kForward : ActionKind::kBackward, is_near_leg(leg) ? near : far,
                     next[leg]++});
  return row;
}

// Without these waits two actions of a rank would fall into one unit of the period.
BlockStarts v_min_block(int ranks) {
  const int wait = ranks % 3 == 0 ? 2 : 0;
  BlockStarts starts;
  for (int rank = 0; rank < ranks; ++rank)
    starts.push_back({rank, 2 * ranks - 1 - rank, 2 * ranks + wait + rank, 4 * ranks + wait - 1 - rank});
  return starts;
}

BlockStarts v_half_block(int ranks) {
  const int wait = ranks % 2 == 0 ? 3 : 0;
  BlockStarts starts;
  for (int rank = 0; rank < ranks; ++rank)
    starts.push_back({2 * rank, 3 * ranks - 2 - rank, 3 * ranks - 1 + wait + 2 * rank, 6 * ranks - 2 + wait - rank});
  return starts;
}

// A full backward takes two units. After each three backwards the next slot would fall on a forward, so they wait for
// three units.
BlockStarts v_one_f_one_b_block(int ranks) {
  BlockStarts starts(ranks);
  for (int rank = 0; rank < ranks; ++rank) starts[rank] = {rank, 2 * ranks - 1 - rank};
  int time = 2 * ranks + (ranks % 3 == 0 ? 3 : 0);
  int until_wait = 1 + (ranks + 1) % 3;
  for (const int leg : {kBackwardDown, kBackwardUp})
    for (int i = 0; i < ranks; ++i) {
      starts[leg == kBackwardDown ? i : ranks - 1 - i][leg] = time;
      time += 2;
      if (--until_wait == 0) until_wait = 3, time += 3;
    }
  return starts;
}

template <class RowOf>
Schedule filled(const Schedule& placed, const BlockGrid& grid, RowOf row_of_slots) {
  Schedule schedule = placed;
  for (int rank = 0; rank < placed.ranks(); ++rank) {
    const auto& stages = placed.stages_of_rank[rank];
    schedule.actions[rank] = row_of_slots(grid.slots(rank), stages[0], stages[1]);
  }
  return schedule;
}

Schedule squeezed(const Schedule& placed, const BlockStarts& starts) {
  BlockGrid grid(starts, placed.microbatches);
  grid.place_weights();
  grid.squeeze(true);
  grid.squeeze(false);
  return filled(placed, grid, row_of);
}

}  // namespace

Schedule squeezed_v_min(const Schedule& placed) { return squeezed(placed, v_min_block(placed.ranks())); }
Schedule squeezed_v_half(const Schedule& placed) { return squeezed(placed, v_half_block(placed.ranks())); }

Schedule squeezed_v_one_f_one_b(const Schedule& placed) {
  BlockGrid grid(v_one_f_one_b_block(placed.ranks()), placed.microbatches);
  grid.join_weights();
  grid.squeeze_joined();
  return filled(placed, grid, row_of_full_backwards);
}

}  // namespace gantry::schedule
