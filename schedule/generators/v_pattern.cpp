#include "gantry/schedule/generators/v_pattern.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>

namespace gantry::schedule {
namespace {

// Two chunks per rank, each with a forward, an input gradient and a weight gradient of one unit.
constexpr int kPeriod = 6;
constexpr unsigned kFullPeriod = (1u << kPeriod) - 1;
constexpr int kSteps = 3;  // distances that are tried for each leg
constexpr std::size_t kMostBlocks = 400;

// The times at which each rank starts its four actions of microbatch 0: the forward of its near and its far chunk, the
// backward of the far and the near one.
struct Block {
  std::vector<std::array<int, 4>> starts;
  int backward = 1;  // units of a backward: 2 if it is not split

  int length() const { return starts[0][3] + backward; }
};

// The legs of a microbatch's path: forward down and up the ranks, backward down and up.
struct Distances {
  std::array<int, 4> step;  // minimum distance between neighbouring ranks
  std::array<int, 2> turn;  // waits before the forward returns, and before the backward
};

// The units of the period that an action occupies, as bits.
unsigned slots_of(int time, int units) {
  const unsigned bits = ((1u << units) - 1) << time % kPeriod;
  return (bits | bits >> kPeriod) & kFullPeriod;
}

// Places each action at the earliest unit that the distances allow and that is free on its rank in every period.
std::optional<Block> place(const Distances& distances, int ranks, int backward) {
  Block block{std::vector<std::array<int, 4>>(ranks), backward};
  std::vector<unsigned> taken(ranks, 0);
  int time = 0;
  for (int leg = 0; leg < 4; ++leg) {
    const int units = leg < 2 ? 1 : backward;
    if (leg > 0) time += (leg == 3 ? backward : 1) + (leg < 3 ? distances.turn[leg - 1] : 0);
    for (int i = 0; i < ranks; ++i) {
      const int rank = leg % 2 == 0 ? i : ranks - 1 - i;
      if (i > 0) time += distances.step[leg];
      for (int tried = 0; taken[rank] & slots_of(time, units); ++tried, ++time)
        if (tried == kPeriod) return std::nullopt;
      taken[rank] |= slots_of(time, units);
      block.starts[rank][leg] = time;
    }
  }
  return block;
}

// The maximum number of chunk activations that a rank holds when the block is repeated forever. It increases when a
// forward starts.
int peak_of(const Block& block) {
  int peak = 0;
  for (const auto& times : block.starts) {
    for (const int now : {times[0], times[1]}) {
      int held = 0;
      for (const auto& [from, to] : {std::pair(times[0], times[3]), std::pair(times[1], times[2])}) {
        const int length = to + block.backward - from, phase = ((now - from) % kPeriod + kPeriod) % kPeriod;
        if (length > phase) held += (length - phase - 1) / kPeriod + 1;
      }
      peak = std::max(peak, held);
    }
  }
  return peak;
}

// The row of one rank: its four actions, each repeated every period, sorted by time.
void repeat(const std::array<int, 4>& times, const std::array<Action, 4>& actions, int microbatches,
            std::vector<Action>& row) {
  std::array<int, 4> next{};  // microbatch of each action
  const std::size_t total = 4 * static_cast<std::size_t>(microbatches);
  row.reserve(total);
  while (row.size() < total) {
    int first = -1;
    std::int64_t earliest = 0;
    for (int i = 0; i < 4; ++i) {
      const std::int64_t time = times[i] + std::int64_t{kPeriod} * next[i];
      if (next[i] < microbatches && (first < 0 || time < earliest)) first = i, earliest = time;
    }
    row.push_back(actions[first]);
    row.back().microbatch = next[first]++;
  }
}

Schedule repeat(const Block& block, const Schedule& placed) {
  Schedule order = placed;
  const auto backward = block.backward == 1 ? ActionKind::kInputGradient : ActionKind::kBackward;
  for (int rank = 0; rank < placed.ranks(); ++rank) {
    const int near = placed.stages_of_rank[rank][0], far = placed.stages_of_rank[rank][1];
    const std::array<Action, 4> actions = {Action{ActionKind::kForward, near}, Action{ActionKind::kForward, far},
                                           Action{backward, far}, Action{backward, near}};
    repeat(block.starts[rank], actions, placed.microbatches, order.actions[rank]);
  }
  return order;
}

// Different blocks, the best one first.
std::vector<Block> blocks(int ranks, int limit, int backward) {
  using Figures = std::tuple<bool, int, std::vector<std::array<int, 4>>>;
  std::map<Figures, Block> ranked;
  for (int choice = 0; choice < kSteps * kSteps * kSteps * kSteps * kPeriod * kPeriod; ++choice) {
    int left = choice;
    Distances distances;
    for (int leg = 0; leg < 4; ++leg, left /= kSteps) distances.step[leg] = left % kSteps + (leg < 2 ? 1 : backward);
    for (int turn = 0; turn < 2; ++turn, left /= kPeriod) distances.turn[turn] = left % kPeriod;
    if (auto block = place(distances, ranks, backward))
      ranked.try_emplace({peak_of(*block) > limit, block->length(), block->starts}, *block);
  }
  std::vector<Block> found;
  for (const auto& [figures, block] : ranked)
    if (found.size() < kMostBlocks) found.push_back(block);
  return found;
}

}  // namespace

std::vector<std::function<Schedule()>> v_pattern_orders(const Schedule& placed, int limit, bool split_backward) {
  std::vector<std::function<Schedule()>> orders;
  for (const Block& block : blocks(placed.ranks(), limit, split_backward ? 1 : 2))
    orders.push_back([&placed, block] { return repeat(block, placed); });
  return orders;
}

}  // namespace gantry::schedule
