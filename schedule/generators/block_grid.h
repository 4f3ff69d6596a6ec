// A V schedule on a grid of unit slots: building blocks are placed there, repeated and squeezed.
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "gantry/schedule/generators/v_placement.h"

namespace gantry::schedule {

// The content of a rank's slot: a leg (v_placement.h), or one of these.
constexpr int kWeightSlot = kVLegs, kIdleSlot = kVLegs + 1;

constexpr bool is_backward_leg(int leg) { return leg == kBackwardDown || leg == kBackwardUp; }

// The units of a microbatch on a rank, in order: two chunks, each with F, I and W.
constexpr int kBlockPeriod = 6;

// The slots at which each rank starts the four legs of a block.
using BlockStarts = std::vector<std::array<int, kVLegs>>;

class BlockGrid {
 public:
  BlockGrid(const BlockStarts& starts, int microbatches);

  // Weight gradients go to idle slots, or directly after their backward.
  void place_weights();
  void join_weights();
  // Moves actions of the ramp down (with fixed weight gradients also of the ramp up) to earlier slots if that does not
  // raise the peak of activations. Then runs every action as early as the order of the slots allows.
  void squeeze(bool with_weights);
  // Moves every action; weight gradients move with their backwards.
  void squeeze_joined();
  const std::vector<int>& slots(int rank) const { return lanes_[rank].slots; }

 private:
  struct Memory {
    int held = 0;     // activations
    int waiting = 0;  // weight gradients without a slot
  };

  // One rank's actions on a grid of unit slots.
  struct Lane {
    std::vector<int> slots;
    std::array<std::vector<int>, kVLegs> slot_of;  // by leg and microbatch
    std::vector<Memory> after;                     // each slot

    int length() const { return static_cast<int>(slots.size()); }
    int at(int slot) const { return slot < length() ? slots[slot] : kIdleSlot; }
    Memory before(int slot) const { return slot > 0 ? after[slot - 1] : Memory{}; }

    // If weight gradients have no slots, idle slots are assumed to be theirs.
    Memory step(Memory memory, int leg, bool with_weights) const {
      if (is_forward_leg(leg)) ++memory.held;
      if (leg == kWeightSlot) --memory.held;
      if (is_backward_leg(leg) && !with_weights) ++memory.waiting;
      if (leg == kIdleSlot && memory.waiting > 0) --memory.waiting, --memory.held;
      return memory;
    }

    // The highest number of activations held from `first` on.
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
      if (slot >= length()) slots.resize(slot + 1, kIdleSlot);
      slots[slot] = leg;
    }
  };

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

}  // namespace gantry::schedule
