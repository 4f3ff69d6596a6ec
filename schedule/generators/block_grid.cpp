#include "gantry/schedule/generators/block_grid.h"

#include <algorithm>

namespace gantry::schedule {

BlockGrid::BlockGrid(const BlockStarts& starts, int microbatches)
    : ranks_(static_cast<int>(starts.size())), lanes_(starts.size()) {
  for (int rank = 0; rank < ranks_; ++rank)
    for (int leg = 0; leg < kVLegs; ++leg)
      for (int i = 0; i < microbatches; ++i) {
        lanes_[rank].slot_of[leg].push_back(starts[rank][leg] + kBlockPeriod * i);
        lanes_[rank].put(lanes_[rank].slot_of[leg].back(), leg);
      }
}

int BlockGrid::length() const {
  int length = 0;
  for (const Lane& lane : lanes_) length = std::max(length, lane.length());
  return length;
}

void BlockGrid::place_weights() {
  for (Lane& lane : lanes_) {
    int waiting = 0;
    for (int slot = 0; slot < lane.length() || waiting > 0; ++slot) {
      if (is_backward_leg(lane.at(slot))) ++waiting;
      if (lane.at(slot) == kIdleSlot && waiting > 0) --waiting, lane.put(slot, kWeightSlot);
    }
  }
}

void BlockGrid::join_weights() {
  for (Lane& lane : lanes_)
    for (const int leg : {kBackwardDown, kBackwardUp})
      for (const int slot : lane.slot_of[leg]) lane.put(slot + 1, kWeightSlot);
}

void BlockGrid::remove_weights() {
  for (Lane& lane : lanes_) {
    std::ranges::replace(lane.slots, kWeightSlot, kIdleSlot);
    while (!lane.slots.empty() && lane.slots.back() == kIdleSlot) lane.slots.pop_back();
  }
}

// The first slot after all dependencies of the lane's next action of this leg.
int BlockGrid::earliest(int rank, int leg, const Progress& progress) const {
  if (leg == kWeightSlot) return std::max(progress.last_weight, progress.backwards[progress.weights]) + 1;
  const int microbatch = progress.next[leg];
  const Lane& lane = lanes_[rank];
  const int sender = sender_on(leg, rank);
  int last = -1;
  if (sender >= 0 && sender < ranks_) last = lanes_[sender].slot_of[leg][microbatch];
  if (leg > 0) last = std::max(last, lane.slot_of[leg - 1][microbatch]);
  if (microbatch > 0) last = std::max(last, lane.slot_of[leg][microbatch - 1]);
  return last + 1;
}

// The activations of a forward that is moved to an earlier slot are held in all slots between.
int BlockGrid::find_slot_for_forward(Lane& lane, int from, int slot, int peak) const {
  int first = slot;
  while (first > from && lane.after[first - 1].held + 1 <= peak) --first;
  while (first < slot && lane.slots[first] != kIdleSlot) ++first;
  return first;
}

// Moves change the set of idle slots, and therefore the times of weight gradients.
int BlockGrid::find_slot_without_weights(Lane& lane, int from, int slot, int peak) const {
  const int leg = lane.slots[slot];
  for (int tried = from; tried < slot; ++tried) {
    if (lane.slots[tried] != kIdleSlot) continue;
    lane.slots[slot] = kIdleSlot;
    lane.slots[tried] = leg;
    const bool fits = lane.measure(tried, false) <= peak;
    lane.slots[tried] = kIdleSlot;
    lane.slots[slot] = leg;
    if (fits) return tried;
    lane.measure(tried, false);
  }
  return slot;
}

int BlockGrid::find_slot(Lane& lane, int from, int slot, int peak, bool with_weights) const {
  if (!with_weights) return find_slot_without_weights(lane, from, slot, peak);
  if (is_forward_leg(lane.slots[slot])) return find_slot_for_forward(lane, from, slot, peak);
  while (from < slot && lane.slots[from] != kIdleSlot) ++from;
  return from;
}

// In the order of the slots. The ramp up ends with the first microbatch; the ramp down starts after the last forward of
// the first stage.
void BlockGrid::move_up(bool with_weights) {
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
      if (leg == kIdleSlot) continue;
      if (phase == kRampUp && rank == 0 && leg == kBackwardUp) phase = kSteady;
      const bool stays = phase == kSteady || (phase == kRampUp && !with_weights);
      if (phase == kSteady && leg == kForwardDown && at.next[leg] + 1 == microbatches()) phase = kRampDown;
      const int to = stays ? slot : find_slot(lane, earliest(rank, leg, at), slot, peak, with_weights);
      if (to < slot) {
        lane.slots[slot] = kIdleSlot;
        lane.slots[to] = leg;
        lane.measure(to, with_weights);
      }
      if (leg == kWeightSlot) {
        at.last_weight = to;
        ++at.weights;
        continue;
      }
      lane.slot_of[leg][at.next[leg]++] = to;
      if (is_backward_leg(leg)) at.backwards.insert(std::ranges::upper_bound(at.backwards, to), to);
    }
  }
}

void BlockGrid::run_early() {
  std::vector<Lane> early(ranks_);
  for (int rank = 0; rank < ranks_; ++rank) early[rank].slot_of = lanes_[rank].slot_of;
  std::vector<std::array<int, kVLegs>> next(ranks_);
  const int end = length();
  for (int slot = 0; slot < end; ++slot) {
    for (int rank = 0; rank < ranks_; ++rank) {
      const int leg = lanes_[rank].at(slot);
      if (leg == kIdleSlot) continue;
      int start = early[rank].length();
      if (leg != kWeightSlot) {
        const int microbatch = next[rank][leg]++, sender = sender_on(leg, rank);
        if (sender >= 0 && sender < ranks_) start = std::max(start, early[sender].slot_of[leg][microbatch] + 1);
        early[rank].slot_of[leg][microbatch] = start;
      }
      early[rank].put(start, leg);
    }
  }
  lanes_ = std::move(early);
}

void BlockGrid::squeeze(bool with_weights) {
  move_up(with_weights);
  if (!with_weights) place_weights();
  run_early();
  remove_weights();
}

int BlockGrid::earliest_joined(int rank, int leg, int microbatch) const {
  const Lane& lane = lanes_[rank];
  const int sender = sender_on(leg, rank), units = is_forward_leg(leg) ? 1 : 2;
  int from = microbatch > 0 ? lane.slot_of[leg][microbatch - 1] + 1 : 0;
  if (sender >= 0 && sender < ranks_)
    from = std::max(from, lanes_[sender].slot_of[leg][microbatch] + units);
  else if (leg > 0)
    from = std::max(from, lane.slot_of[leg - 1][microbatch] + (is_forward_leg(leg - 1) ? 1 : 2));
  return from;
}

void BlockGrid::squeeze_joined() {
  int peak = 0;
  for (Lane& lane : lanes_) peak = std::max(peak, lane.measure(0, true));
  std::vector<std::array<int, kVLegs>> next(ranks_);
  const int end = length();
  for (int slot = 0; slot < end; ++slot) {
    for (int rank = 0; rank < ranks_; ++rank) {
      Lane& lane = lanes_[rank];
      const int leg = lane.at(slot);
      if (leg == kIdleSlot || leg == kWeightSlot) continue;
      int to = earliest_joined(rank, leg, next[rank][leg]);
      if (is_forward_leg(leg))
        to = find_slot_for_forward(lane, to, slot, peak);
      else
        while (to < slot && (lane.slots[to] != kIdleSlot || lane.slots[to + 1] != kIdleSlot)) ++to;
      lane.slot_of[leg][next[rank][leg]++] = to;
      if (to == slot) continue;
      lane.slots[slot] = kIdleSlot;
      lane.slots[to] = leg;
      if (!is_forward_leg(leg)) lane.slots[slot + 1] = kIdleSlot, lane.slots[to + 1] = kWeightSlot;
      lane.measure(to, true);
    }
  }
}

}  // namespace gantry::schedule
