#include "gantry/schedule/generators/v_pattern.h"

#include <algorithm>
#include <cstdint>

namespace gantry::schedule {
namespace {

// Per chunk: a forward, an input gradient and a weight gradient of one unit each; two chunks a rank.
constexpr int kPeriod = 6;
constexpr int kLongestTurn = 5;
constexpr int kMoreWaiting = 4;  // than the turns that wait least

// Distances in units between neighbouring stages on the four legs (forward down and up, backward down and up), and
// waits at the three turns between them.
struct Block {
  std::array<int, 4> step;
  std::array<int, 3> turn;
};

// When the rank runs the four actions of microbatch 0: forward of both chunks, backward of both.
std::array<int, 4> starts(const Block& block, int rank, int ranks) {
  const int last = ranks - 1, back = last - rank;
  const int top = last * block.step[0] + 1 + block.turn[0];         // the second chunk's first stage
  const int loss = top + last * block.step[1] + 1 + block.turn[1];  // the first backward
  const int bottom = loss + last * block.step[2] + 1 + block.turn[2];
  return {rank * block.step[0], top + back * block.step[1], loss + rank * block.step[2], bottom + back * block.step[3]};
}

bool fits(const Block& block, int ranks) {
  for (int rank = 0; rank < ranks; ++rank) {
    unsigned taken = 0;
    const auto times = starts(block, rank, ranks);
    for (const int time : times) {
      const unsigned slot = 1u << (time % kPeriod);
      if (taken & slot) return false;
      taken |= slot;
    }
  }
  return true;
}

Schedule repeat(const Block& block, const Schedule& placed) {
  Schedule order = placed;
  const int ranks = placed.ranks();
  for (int rank = 0; rank < ranks; ++rank) {
    const auto times = starts(block, rank, ranks);
    const int near = placed.stages_of_rank[rank][0], far = placed.stages_of_rank[rank][1];
    std::vector<std::pair<std::int64_t, Action>> timed;
    for (int microbatch = 0; microbatch < placed.microbatches; ++microbatch) {
      const std::int64_t shift = std::int64_t{kPeriod} * microbatch;
      timed.push_back({times[0] + shift, {ActionKind::kForward, near, microbatch}});
      timed.push_back({times[1] + shift, {ActionKind::kForward, far, microbatch}});
      timed.push_back({times[2] + shift, {ActionKind::kInputGradient, far, microbatch}});
      timed.push_back({times[3] + shift, {ActionKind::kInputGradient, near, microbatch}});
    }
    std::ranges::stable_sort(timed, {}, [](const auto& each) { return each.first; });
    for (const auto& [time, action] : timed) order.actions[rank].push_back(action);
  }
  return order;
}

// The turns that wait least in all, or little more, and fit.
std::vector<Block> blocks_of(const std::array<int, 4>& step, int ranks) {
  std::vector<Block> found;
  int least = 3 * kLongestTurn + 1;
  for (int sum = 0; sum <= 3 * kLongestTurn && sum <= least + kMoreWaiting; ++sum)
    for (int first = 0; first <= std::min(sum, kLongestTurn); ++first)
      for (int second = 0; second <= std::min(sum - first, kLongestTurn); ++second) {
        const int third = sum - first - second;
        const Block block{step, {first, second, third}};
        if (third > kLongestTurn || !fits(block, ranks)) continue;
        least = std::min(least, sum);
        found.push_back(block);
      }
  return found;
}

}  // namespace

std::vector<Schedule> v_pattern_orders(const Schedule& placed) {
  std::vector<Schedule> orders;
  for (int choice = 0; choice < 81; ++choice) {
    std::array<int, 4> step;
    for (int leg = 0, left = choice; leg < 4; ++leg, left /= 3) step[leg] = left % 3 + 1;
    for (const Block& block : blocks_of(step, placed.ranks())) orders.push_back(repeat(block, placed));
  }
  return orders;
}

}  // namespace gantry::schedule
