#include "gantry/schedule/generators/squeezed_blocks.h"

#include <algorithm>

#include "gantry/schedule/generators/v_placement.h"

namespace gantry::schedule {
namespace {

// What a slot holds: a leg, or one of these.
constexpr int kWeight = kVLegs, kIdle = kVLegs + 1;

bool is_backward_leg(int leg) { return leg == kBackwardDown || leg == kBackwardUp; }

struct Memory {
  int held = 0;     // activations
  int waiting = 0;  // weight gradients that no slot is given to
};

// One rank's actions on a grid of unit slots.
struct Lane {
  std::vector<int> slots;
  std::array<std::vector<int>, kVLegs> slot_of;  // by leg and microbatch
  std::vector<Memory> after;                     // each slot

  int length() const { return static_cast<int>(slots.size()); }
  int at(int slot) const { return slot < length() ? slots[slot] : kIdle; }
  Memory before(int slot) const { return slot > 0 ? after[slot - 1] : Memory{}; }

  // Where weight gradients have no slots, idle ones are taken to be theirs.
  Memory step(Memory memory, int leg, bool with_weights) const {
    if (is_forward_leg(leg)) ++memory.held;
    if (leg == kWeight) --memory.held;
    if (is_backward_leg(leg) && !with_weights) ++memory.waiting;
    if (leg == kIdle && memory.waiting > 0) --memory.waiting, --memory.held;
    return memory;
  }

  // From `first` on; the highest number of activations held.
  int measure(int first, bool with_weights) {
    after.resize(slots.size());
    int peak = 0;
    for (int slot = first; slot < length(); ++slot) {
      after[slot] = step(before(slot), slots[slot], with_weights);
      peak = std::max(peak, after[slot].held);
    }
    return peak;
  }

  void put(int slot, int leg) {
    if (slot >= length()) slots.resize(slot + 1, kIdle);
    slots[slot] = leg;
  }
};

// A microbatch's units on a rank, one after the other: two chunks, each with F, I and W.
constexpr int kBlockPeriod = 6;

// When each rank starts the four legs of a block.
using BlockStarts = std::vector<std::array<int, kVLegs>>;

class Grid {
 public:
  Grid(const BlockStarts& starts, int microbatches) : ranks_(static_cast<int>(starts.size())), lanes_(starts.size()) {
    for (int rank = 0; rank < ranks_; ++rank)
      for (int leg = 0; leg < kVLegs; ++leg)
        for (int i = 0; i < microbatches; ++i) {
          lanes_[rank].slot_of[leg].push_back(starts[rank][leg] + kBlockPeriod * i);
          lanes_[rank].put(lanes_[rank].slot_of[leg].back(), leg);
        }
  }

  // Weight gradients go to idle slots, or each right after its backward.
  void place_weights();
  void join_weights();
  // Moves actions of the ramp down, and with weight gradients in place of the ramp up too, to earlier slots where that
  // does not raise the peak; then runs every action as early as the order of the slots allows.
  void squeeze(bool with_weights);
  // Moves every action; backwards take their weight gradients along.
  void squeeze_joined();
  const std::vector<int>& slots(int rank) const { return lanes_[rank].slots; }

 private:
  // How far a lane has been squeezed.
  struct Progress {
    std::array<int, kVLegs> next{};  // microbatch
    std::vector<int> backwards;      // their slots, in ascending order
    int weights = 0;
    int last_weight = -1;
  };

  int microbatches() const { return static_cast<int>(lanes_[0].slot_of[0].size()); }
  int length() const;
  int earliest(int rank, int leg, const Progress& progress) const;
  int earliest_joined(int rank, int leg, int microbatch) const;
  int find_slot(Lane& lane, int from, int slot, int peak, bool with_weights) const;
  int find_slot_for_forward(Lane& lane, int from, int slot, int peak) const;
  int find_slot_without_weights(Lane& lane, int from, int slot, int peak) const;
  void remove_weights();
  void move_up(bool with_weights);
  void run_early();

  int ranks_;
  std::vector<Lane> lanes_;
};

int Grid::length() const {
  int length = 0;
  for (const Lane& lane : lanes_) length = std::max(length, lane.length());
  return length;
}

void Grid::place_weights() {
  for (Lane& lane : lanes_) {
    int waiting = 0;
    for (int slot = 0; slot < lane.length() || waiting > 0; ++slot) {
      if (is_backward_leg(lane.at(slot))) ++waiting;
      if (lane.at(slot) == kIdle && waiting > 0) --waiting, lane.put(slot, kWeight);
    }
  }
}

void Grid::join_weights() {
  for (Lane& lane : lanes_)
    for (const int leg : {kBackwardDown, kBackwardUp})
      for (const int slot : lane.slot_of[leg]) lane.put(slot + 1, kWeight);
}

void Grid::remove_weights() {
  for (Lane& lane : lanes_) {
    std::ranges::replace(lane.slots, kWeight, kIdle);
    while (!lane.slots.empty() && lane.slots.back() == kIdle) lane.slots.pop_back();
  }
}

// The slot after everything that the lane's next action of this leg needs.
int Grid::earliest(int rank, int leg, const Progress& progress) const {
  if (leg == kWeight) return std::max(progress.last_weight, progress.backwards[progress.weights]) + 1;
  const int microbatch = progress.next[leg];
  const Lane& lane = lanes_[rank];
  const int sender = sender_on(leg, rank);
  int last = -1;
  if (sender >= 0 && sender < ranks_) last = lanes_[sender].slot_of[leg][microbatch];
  if (leg > 0) last = std::max(last, lane.slot_of[leg - 1][microbatch]);
  if (microbatch > 0) last = std::max(last, lane.slot_of[leg][microbatch - 1]);
  return last + 1;
}

// A forward that moves up is held in all slots between.
int Grid::find_slot_for_forward(Lane& lane, int from, int slot, int peak) const {
  int first = slot;
  while (first > from && lane.after[first - 1].held + 1 <= peak) --first;
  while (first < slot && lane.slots[first] != kIdle) ++first;
  return first;
}

// A move changes which slots are idle, and with them when weight gradients run.
int Grid::find_slot_without_weights(Lane& lane, int from, int slot, int peak) const {
  const int leg = lane.slots[slot];
  for (int tried = from; tried < slot; ++tried) {
    if (lane.slots[tried] != kIdle) continue;
    lane.slots[slot] = kIdle;
    lane.slots[tried] = leg;
    const bool fits = lane.measure(tried, false) <= peak;
    lane.slots[tried] = kIdle;
    lane.slots[slot] = leg;
    if (fits) return tried;
    lane.measure(tried, false);
  }
  return slot;
}

int Grid::find_slot(Lane& lane, int from, int slot, int peak, bool with_weights) const {
  if (!with_weights) return find_slot_without_weights(lane, from, slot, peak);
  if (is_forward_leg(lane.slots[slot])) return find_slot_for_forward(lane, from, slot, peak);
  while (from < slot && lane.slots[from] != kIdle) ++from;
  return from;
}

// In the order of the slots. The ramp up ends with the first microbatch, the ramp down begins after the last forward
// of the first stage.
void Grid::move_up(bool with_weights) {
  int peak = 0;
  for (Lane& lane : lanes_) peak = std::max(peak, lane.measure(0, with_weights));
  std::vector<Progress> progress(ranks_);
  enum { kRampUp, kSteady, kRampDown } phase = kRampUp;
  const int end = length();
  for (int slot = 0; slot < end; ++slot) {
    for (int rank = 0; rank < ranks_; ++rank) {
      Lane& lane = lanes_[rank];
      Progress& at = progress[rank];
      const int leg = lane.at(slot);
      if (leg == kIdle) continue;
      if (phase == kRampUp && rank == 0 && leg == kBackwardUp) phase = kSteady;
      const bool stays = phase == kSteady || (phase == kRampUp && !with_weights);
      if (phase == kSteady && leg == kForwardDown && at.next[leg] + 1 == microbatches()) phase = kRampDown;
      const int to = stays ? slot : find_slot(lane, earliest(rank, leg, at), slot, peak, with_weights);
      if (to < slot) {
        lane.slots[slot] = kIdle;
        lane.slots[to] = leg;
        lane.measure(to, with_weights);
      }
      if (leg == kWeight) {
        at.last_weight = to;
        ++at.weights;
        continue;
      }
      lane.slot_of[leg][at.next[leg]++] = to;
      if (is_backward_leg(leg)) at.backwards.insert(std::ranges::upper_bound(at.backwards, to), to);
    }
  }
}

void Grid::run_early() {
  std::vector<Lane> early(ranks_);
  for (int rank = 0; rank < ranks_; ++rank) early[rank].slot_of = lanes_[rank].slot_of;
  std::vector<std::array<int, kVLegs>> next(ranks_);
  const int end = length();
  for (int slot = 0; slot < end; ++slot) {
    for (int rank = 0; rank < ranks_; ++rank) {
      const int leg = lanes_[rank].at(slot);
      if (leg == kIdle) continue;
      int start = early[rank].length();
      if (leg != kWeight) {
        const int microbatch = next[rank][leg]++, sender = sender_on(leg, rank);
        if (sender >= 0 && sender < ranks_) start = std::max(start, early[sender].slot_of[leg][microbatch] + 1);
        early[rank].slot_of[leg][microbatch] = start;
      }
      early[rank].put(start, leg);
    }
  }
  lanes_ = std::move(early);
}

void Grid::squeeze(bool with_weights) {
  move_up(with_weights);
  if (!with_weights) place_weights();
  run_early();
  remove_weights();
}

int Grid::earliest_joined(int rank, int leg, int microbatch) const {
  const Lane& lane = lanes_[rank];
  const int sender = sender_on(leg, rank), units = is_forward_leg(leg) ? 1 : 2;
  int from = microbatch > 0 ? lane.slot_of[leg][microbatch - 1] + 1 : 0;
  if (sender >= 0 && sender < ranks_)
    from = std::max(from, lanes_[sender].slot_of[leg][microbatch] + units);
  else if (leg > 0)
    from = std::max(from, lane.slot_of[leg - 1][microbatch] + (is_forward_leg(leg - 1) ? 1 : 2));
  return from;
}

void Grid::squeeze_joined() {
  int peak = 0;
  for (Lane& lane : lanes_) peak = std::max(peak, lane.measure(0, true));
  std::vector<std::array<int, kVLegs>> next(ranks_);
  const int end = length();
  for (int slot = 0; slot < end; ++slot) {
    for (int rank = 0; rank < ranks_; ++rank) {
      Lane& lane = lanes_[rank];
      const int leg = lane.at(slot);
      if (leg == kIdle || leg == kWeight) continue;
      int to = earliest_joined(rank, leg, next[rank][leg]);
      if (is_forward_leg(leg))
        to = find_slot_for_forward(lane, to, slot, peak);
      else
        while (to < slot && (lane.slots[to] != kIdle || lane.slots[to + 1] != kIdle)) ++to;
      lane.slot_of[leg][next[rank][leg]++] = to;
      if (to == slot) continue;
      lane.slots[slot] = kIdle;
      lane.slots[to] = leg;
      if (!is_forward_leg(leg)) lane.slots[slot + 1] = kIdle, lane.slots[to + 1] = kWeight;
      lane.measure(to, true);
    }
  }
}

// Weight gradients go to idle slots, those of the far chunk first.
std::vector<Action> row_of(const std::vector<int>& slots, int near, int far) {
  std::vector<Action> row;
  std::array<int, kVLegs> next{};
  std::array<int, 2> waiting{}, weights{};  // of the far chunk, of the near one
  auto add_weight = [&] {
    const int chunk = waiting[0] > 0 ? 0 : 1;
    if (waiting[chunk] == 0) return false;
    --waiting[chunk];
    row.push_back({ActionKind::kWeightGradient, chunk == 0 ? far : near, weights[chunk]++});
    return true;
  };
  for (const int leg : slots) {
    if (leg == kIdle) {
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

std::vector<Action> row_of_whole_backwards(const std::vector<int>& slots, int near, int far) {
  std::vector<Action> row;
  std::array<int, kVLegs> next{};
  for (const int leg : slots)
    if (leg != kIdle && leg != kWeight)
      row.push_back({is_forward_leg(leg) ? ActionKind::kForward : ActionKind::kBackward, is_near_leg(leg) ? near : far,
                     next[leg]++});
  return row;
}

// Without the waits two actions of a rank would fall on one unit of the period.
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

// A whole backward takes two units, so after each three of them the way falls on forwards, and waits for three units.
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
Schedule filled(const Schedule& placed, const Grid& grid, RowOf row_of_slots) {
  Schedule schedule = placed;
  for (int rank = 0; rank < placed.ranks(); ++rank) {
    const auto& stages = placed.stages_of_rank[rank];
    schedule.actions[rank] = row_of_slots(grid.slots(rank), stages[0], stages[1]);
  }
  return schedule;
}

Schedule squeezed(const Schedule& placed, const BlockStarts& starts) {
  Grid grid(starts, placed.microbatches);
  grid.place_weights();
  grid.squeeze(true);
  grid.squeeze(false);
  return filled(placed, grid, row_of);
}

}  // namespace

Schedule squeezed_v_min(const Schedule& placed) { return squeezed(placed, v_min_block(placed.ranks())); }
Schedule squeezed_v_half(const Schedule& placed) { return squeezed(placed, v_half_block(placed.ranks())); }

Schedule squeezed_v_one_f_one_b(const Schedule& placed) {
  Grid grid(v_one_f_one_b_block(placed.ranks()), placed.microbatches);
  grid.join_weights();
  grid.squeeze_joined();
  return filled(placed, grid, row_of_whole_backwards);
}

}  // namespace gantry::schedule
