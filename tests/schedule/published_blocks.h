// A plain and slow construction of the building-block schedules of Qi et al., "Pipeline Parallelism with
// Controllable Memory", arXiv 2405.15362. The tests compare v_min, v_half and v_1f1b with it. The legs of a
// microbatch's path through the ranks are 0 (forward down), 1 (forward up), 2 (backward down) and 3 (backward
// up). 4 is a weight gradient.
#pragma once

#include <algorithm>
#include <array>
#include <set>
#include <vector>

#include "gantry/schedule/schedule.h"

namespace gantry::schedule::testing {

// The slots of one rank's actions on a grid of unit slots, by leg and microbatch. Weight gradients are
// assigned to chunks and microbatches only at the end.
using Lane = std::array<std::vector<int>, 5>;

class BuildingBlocks {
 public:
  enum class Kind { kMin, kHalf, kFull };

  BuildingBlocks(Kind kind, int ranks, int microbatches) : kind_(kind), ranks_(ranks), microbatches_(microbatches) {
    const auto full = full_blocks();
    for (int rank = 0; rank < ranks; ++rank) {
      Lane lane;
      const std::array<int, 4> block = kind == Kind::kMin    ? min_block(rank)
                                       : kind == Kind::kHalf ? half_block(rank)
                                                             : full[rank];
      for (int leg = 0; leg < 4; ++leg)
        for (int i = 0; i < microbatches; ++i) lane[leg].push_back(block[leg] + 6 * i);
      lanes_.push_back(lane);
    }
  }

  // Makes the schedule from the repeated blocks. They are squeezed first with the weight gradients in place,
  // then without them. Full backwards are squeezed once.
  Schedule make() {
    if (kind_ == Kind::kFull) {
      squeeze_full();
    } else {
      for (auto& lane : lanes_) place_weights(lane);
      squeeze(true);
      for (auto& lane : lanes_) lane[4].clear();
      squeeze(false);
    }
    Schedule schedule;
    schedule.name = "building blocks";
    schedule.microbatches = microbatches_;
    for (int rank = 0; rank < ranks_; ++rank) {
      schedule.stages_of_rank.push_back({rank, 2 * ranks_ - 1 - rank});
      schedule.actions.push_back(kind_ == Kind::kFull ? row_of_full(rank) : row(rank));
    }
    return schedule;
  }

 private:
  std::array<int, 4> min_block(int r) const {
    const int p = ranks_, wait = p % 3 == 0 ? 2 : 0;
    return {r, 2 * p - 1 - r, 2 * p + wait + r, 4 * p + wait - 1 - r};
  }
  std::array<int, 4> half_block(int r) const {
    const int p = ranks_, wait = p % 2 == 0 ? 3 : 0;
    return {2 * r, 3 * p - 2 - r, 3 * p - 1 + wait + 2 * r, 6 * p - 2 + wait - r};
  }

  // A backward takes two slots. After every third backward, the path waits for three slots.
  std::vector<std::array<int, 4>> full_blocks() const {
    const int p = ranks_;
    std::vector<std::array<int, 4>> blocks(p);
    int now = 2 * p + (p % 3 == 0 ? 3 : 0), cycle = (3 - (p + 2) % 3) % 3;
    for (int i = 0; i < 2 * p; ++i) {
      blocks[i < p ? i : 2 * p - 1 - i][i < p ? 2 : 3] = now;
      now += ++cycle % 3 == 0 ? 5 : 2;
    }
    for (int r = 0; r < p; ++r) blocks[r][0] = r, blocks[r][1] = 2 * p - 1 - r;
    return blocks;
  }

  static int length_of(const Lane& lane) {
    int end = 0;
    for (const auto& slots : lane)
      if (!slots.empty()) end = std::max(end, slots.back() + 1);
    return end;
  }

  // Returns the leg in each slot, or -1.
  static std::vector<int> slots_of(const Lane& lane) {
    std::vector<int> slots(length_of(lane), -1);
    for (int leg = 0; leg < 5; ++leg)
      for (const int slot : lane[leg]) slots[slot] = leg;
    return slots;
  }

  static bool is_backward(int leg) { return leg == 2 || leg == 3; }

  static void place_weights(Lane& lane) {
    const auto slots = slots_of(lane);
    int waiting = 0, slot = 0;
    for (; slot < static_cast<int>(slots.size()) || waiting > 0; ++slot) {
      const int leg = slot < static_cast<int>(slots.size()) ? slots[slot] : -1;
      if (is_backward(leg)) ++waiting;
      if (leg < 0 && waiting > 0) --waiting, lane[4].push_back(slot);
    }
  }

  // Returns the peak number of activations, which live from the forward to the weight gradient. If weight
  // gradients have no slots yet, they are assumed to use the idle ones.
  static int peak_of(const Lane& lane) {
    int held = 0, peak = 0, waiting = 0;
    for (const int leg : slots_of(lane)) {
      if (leg == 0 || leg == 1) ++held;
      if (leg == 4) --held;
      if (is_backward(leg)) ++waiting;
      if (leg < 0 && lane[4].empty() && waiting > 0) --waiting, --held;
      peak = std::max(peak, held);
    }
    return peak;
  }

  struct Element {
    int slot, rank, leg, index;
    auto operator<=>(const Element&) const = default;
  };

  std::vector<Element> elements() const {
    std::vector<Element> all;
    for (int rank = 0; rank < ranks_; ++rank)
      for (int leg = 0; leg < 5; ++leg)
        for (int i = 0; i < static_cast<int>(lanes_[rank][leg].size()); ++i)
          all.push_back({lanes_[rank][leg][i], rank, leg, i});
    std::ranges::sort(all);
    return all;
  }

  // Returns the first slot after all that the element depends on.
  int earliest(const Element& e) const {
    const auto& lane = lanes_[e.rank];
    int last = -1;
    const int before = e.leg == 0 || e.leg == 2 ? e.rank - 1 : e.leg == 4 ? -1 : e.rank + 1;
    if (before >= 0 && before < ranks_) last = std::max(last, lanes_[before][e.leg][e.index]);
    if (e.leg > 0 && e.leg < 4) last = std::max(last, lane[e.leg - 1][e.index]);
    if (e.index > 0) last = std::max(last, lane[e.leg][e.index - 1]);
    if (e.leg == 4) {
      std::vector<int> backwards = lane[2];
      backwards.insert(backwards.end(), lane[3].begin(), lane[3].end());
      std::ranges::sort(backwards);
      last = std::max(last, backwards[e.index]);
    }
    return last + 1;
  }

  // Moves the actions of the ramp up (with weights) and of the ramp down to earlier slots, if that does not
  // raise the peak.
  void squeeze(bool with_weights) {
    int peak = 0;
    for (const auto& lane : lanes_) peak = std::max(peak, peak_of(lane));
    std::vector<std::set<int>> taken(ranks_);
    int phase = 0;
    for (const Element& e : elements()) {
      if (phase == 0 && e.rank == 0 && e.leg == 3) phase = 1;
      const bool stays = phase == 1 || (phase == 0 && !with_weights);
      if (phase == 1 && e.leg == 0 && e.index + 1 == microbatches_) phase = 2;
      int& slot = lanes_[e.rank][e.leg][e.index];
      for (int tried = stays ? e.slot : earliest(e); tried <= e.slot; ++tried) {
        if (tried < e.slot && taken[e.rank].contains(tried)) continue;
        slot = tried;
        if (tried == e.slot || peak_of(lanes_[e.rank]) <= peak) break;
      }
      taken[e.rank].insert(slot);
    }
    if (!with_weights)
      for (auto& lane : lanes_) place_weights(lane);
    run();
  }

  // Places a weight gradient in the second slot of each full backward.
  static void join_weights(Lane& lane) {
    lane[4].clear();
    for (const int leg : {2, 3})
      for (const int slot : lane[leg]) lane[4].push_back(slot + 1);
    std::ranges::sort(lane[4]);
  }

  int earliest_full(const Element& e) const {
    const int before = e.leg % 2 == 0 ? e.rank - 1 : e.rank + 1;
    int from = e.index > 0 ? lanes_[e.rank][e.leg][e.index - 1] + 1 : 0;
    if (before >= 0 && before < ranks_) return std::max(from, lanes_[before][e.leg][e.index] + (e.leg < 2 ? 1 : 2));
    if (e.leg > 0) from = std::max(from, lanes_[e.rank][e.leg - 1][e.index] + (e.leg - 1 < 2 ? 1 : 2));
    return from;
  }

  // Moves every action to an earlier slot, if that does not raise the peak.
  void squeeze_full() {
    const std::vector<Element> all = elements();
    int peak = 0;
    for (auto& lane : lanes_) join_weights(lane), peak = std::max(peak, peak_of(lane));
    for (const Element& e : all) {
      Lane& lane = lanes_[e.rank];
      int& slot = lane[e.leg][e.index];
      for (int tried = earliest_full(e); tried < e.slot; ++tried) {
        const auto slots = slots_of(lane);
        if (slots[tried] >= 0 || (is_backward(e.leg) && slots[tried + 1] >= 0)) continue;
        slot = tried;
        join_weights(lane);
        if (peak_of(lane) <= peak) break;
        slot = e.slot;
        join_weights(lane);
      }
    }
  }

  // Runs every action as early as the order of the slots allows, with unit times.
  void run() {
    std::vector<Lane> ends = lanes_;
    std::vector<int> clock(ranks_, 0);
    for (const Element& e : elements()) {
      int start = clock[e.rank];
      const int before = e.leg == 0 || e.leg == 2 ? e.rank - 1 : e.leg == 4 ? -1 : e.rank + 1;
      if (before >= 0 && before < ranks_) start = std::max(start, ends[before][e.leg][e.index]);
      if (e.leg > 0 && e.leg < 4) start = std::max(start, ends[e.rank][e.leg - 1][e.index]);
      clock[e.rank] = ends[e.rank][e.leg][e.index] = start + 1;
    }
    lanes_ = ends;
    for (auto& lane : lanes_)
      for (auto& slots : lane)
        for (int& slot : slots) --slot;
  }

  std::vector<Action> row_of_full(int rank) const {
    std::vector<Action> actions;
    std::array<int, 4> next{};
    for (const int leg : slots_of(lanes_[rank]))
      if (leg >= 0 && leg < 4)
        actions.push_back({is_backward(leg) ? ActionKind::kBackward : ActionKind::kForward,
                           leg == 0 || leg == 3 ? rank : 2 * ranks_ - 1 - rank, next[leg]++});
    return actions;
  }

  // Returns the actions in the order of the slots. Weight gradients of the far chunk precede those of the
  // near chunk.
  std::vector<Action> row(int rank) const {
    const int near = rank, far = 2 * ranks_ - 1 - rank;
    Lane lane = lanes_[rank];
    lane[4].clear();
    std::vector<Action> actions;
    std::array<int, 4> next{};
    std::array<int, 2> waiting{}, weights{};  // far chunk, near chunk
    auto weight = [&] {
      const int which = waiting[0] > 0 ? 0 : 1;
      if (waiting[which] == 0) return false;
      --waiting[which];
      actions.push_back({ActionKind::kWeightGradient, which == 0 ? far : near, weights[which]++});
      return true;
    };
    for (const int leg : slots_of(lane)) {
      if (leg < 0) {
        weight();
        continue;
      }
      const int stage = leg == 0 || leg == 3 ? near : far;
      actions.push_back({is_backward(leg) ? ActionKind::kInputGradient : ActionKind::kForward, stage, next[leg]++});
      if (is_backward(leg)) ++waiting[leg - 2];
    }
    while (weight()) {
    }
    return actions;
  }

  Kind kind_;
  int ranks_, microbatches_;
  std::vector<Lane> lanes_;
};

}  // namespace gantry::schedule::testing
