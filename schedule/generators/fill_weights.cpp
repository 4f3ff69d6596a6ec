#include "gantry/schedule/generators/fill_weights.h"

#include <algorithm>
#include <array>
#include <deque>
#include <limits>

#include "gantry/schedule/action_table.h"
#include "gantry/schedule/simulate.h"

namespace gantry::schedule {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
// Of the search; large pipelines try fewer orders, so that a schedule takes seconds at most.
constexpr std::size_t kMostSteps = 10'000'000;
constexpr double kRounding = 1e-6;

class Filling {
 public:
  Filling(const Schedule& order, const GreedyOptions& options, double least_gap)
      : order_(order),
        options_(options),
        least_gap_(least_gap),
        result_(order),
        rank_of_stage_(ranks_by_stage(order)),
        forward_ready_(order.stages(), order.microbatches, kNever),
        backward_ready_(order.stages(), order.microbatches, kNever),
        next_(order.ranks(), 0),
        clock_(order.ranks(), 0),
        held_(order.ranks(), 0),
        weights_(order.ranks()) {
    for (auto& row : result_.actions) row.clear();
    for (int microbatch = 0; microbatch < order.microbatches; ++microbatch) forward_ready_.at(0, microbatch) = 0;
  }

  std::optional<Schedule> run() {
    for (;;) {
      int rank = -1;
      Choice earliest;
      for (int each = 0; each < order_.ranks(); ++each)
        if (const Choice choice = next_of(each); choice.start < earliest.start) earliest = choice, rank = each;
      if (rank < 0) return finished() ? std::optional(std::move(result_)) : std::nullopt;
      commit(rank, earliest);
    }
  }

 private:
  struct Choice {
    double start = kNever;
    bool weight = false;
  };

  bool finished() const {
    for (int rank = 0; rank < order_.ranks(); ++rank)
      if (next_[rank] < order_.actions[rank].size() || !weights_[rank].empty()) return false;
    return true;
  }

  Choice next_of(int rank) const {
    const bool has_weight = !weights_[rank].empty();
    if (next_[rank] == order_.actions[rank].size()) return {has_weight ? clock_[rank] : kNever, true};
    const Action& action = order_.actions[rank][next_[rank]];
    const bool forward = action.kind == ActionKind::kForward;
    if (forward && held_[rank] + 1 > options_.limit + kRounding) return {has_weight ? clock_[rank] : kNever, true};
    const double ready = (forward ? forward_ready_ : backward_ready_).at(action.stage, action.microbatch);
    const double start = std::max(clock_[rank], ready), idle = start - clock_[rank];
    if (has_weight && idle > 0 && idle >= least_gap_ * options_.weight_gradient) return {clock_[rank], true};
    return {start, false};
  }

  void commit(int rank, const Choice& choice) {
    if (choice.weight) {
      result_.actions[rank].push_back(weights_[rank].front());
      weights_[rank].pop_front();
      clock_[rank] = choice.start + options_.weight_gradient;
      held_[rank] -= options_.waiting_share;
      return;
    }
    const Action action = order_.actions[rank][next_[rank]++];
    result_.actions[rank].push_back(action);
    const int stage = action.stage;
    auto arrival = [&](int other) { return clock_[rank] + (rank_of_stage_[other] == rank ? 0 : options_.hop); };
    if (action.kind == ActionKind::kForward) {
      clock_[rank] = choice.start + options_.forward;
      ++held_[rank];
      if (stage + 1 < order_.stages())
        forward_ready_.at(stage + 1, action.microbatch) = arrival(stage + 1);
      else
        backward_ready_.at(stage, action.microbatch) = clock_[rank];
      return;
    }
    const bool split = action.kind == ActionKind::kInputGradient;
    clock_[rank] = choice.start + options_.input_gradient + (split ? 0 : options_.weight_gradient);
    if (stage > 0) backward_ready_.at(stage - 1, action.microbatch) = arrival(stage - 1);
    held_[rank] -= split ? 1 - options_.waiting_share : 1;
    if (split) weights_[rank].push_back({ActionKind::kWeightGradient, stage, action.microbatch});
  }

  const Schedule& order_;
  const GreedyOptions& options_;
  double least_gap_;
  Schedule result_;
  std::vector<int> rank_of_stage_;
  StageGrid<double> forward_ready_, backward_ready_;
  std::vector<std::size_t> next_;
  std::vector<double> clock_;
  std::vector<double> held_;
  std::vector<std::deque<Action>> weights_;
};

// What makes an order better: the longest rank, the whole, then the activations held.
std::array<double, 3> length_of(const Schedule& schedule, const GreedyOptions& options) {
  if (schedule.actions.empty()) return {kNever, kNever, kNever};
  const auto chunks = static_cast<double>(schedule.stages_of_rank.front().size());
  const Simulation simulation = simulate(schedule, {.forward = options.forward * chunks,
                                                    .input_gradient = options.input_gradient * chunks,
                                                    .weight_gradient = options.weight_gradient * chunks,
                                                    .hop = options.hop});
  return {simulation.makespan_max_rank, simulation.makespan_global,
          static_cast<double>(std::ranges::max(simulation.peak_activations))};
}

}  // namespace

std::optional<Schedule> fill_weights(const Schedule& order, const GreedyOptions& options, double least_gap) {
  return Filling(order, options, least_gap).run();
}

Schedule without_weights(Schedule schedule) {
  for (auto& row : schedule.actions)
    std::erase_if(row, [](const Action& action) { return action.kind == ActionKind::kWeightGradient; });
  return schedule;
}

Schedule best_filled(Schedule found, const std::vector<Schedule>& orders, const GreedyOptions& options) {
  auto shortest = length_of(found, options);
  std::size_t steps = 0;
  for (const Schedule& order : orders) {
    steps += order.actions.front().size() * order.actions.size() * order.actions.size();
    if (steps > kMostSteps) break;
    for (const double least_gap : {0.0, 0.25, 0.5, 0.75, 1.0, 2.0, 1e9}) {
      auto filled = fill_weights(order, options, least_gap);
      if (!filled) continue;
      if (const auto length = length_of(*filled, options); length < shortest)
        shortest = length, found = std::move(*filled);
    }
  }
  return found;
}

}  // namespace gantry::schedule
