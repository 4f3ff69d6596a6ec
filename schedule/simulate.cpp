#include "gantry/schedule/simulate.h"

#include <algorithm>

#include "gantry/core/error.h"
#include "gantry/schedule/action_table.h"
#include "gantry/schedule/validate.h"

namespace gantry::schedule {
namespace {

constexpr double kNotYet = -1;

// The costs of every stage.
std::vector<StageCosts> costs_by_stage(const Schedule& schedule, const Costs& costs,
                                       const std::vector<int>& rank_of_stage) {
  if (!costs.stages.empty() && costs.stages.size() != rank_of_stage.size())
    throw ConfigError({"simulation of schedule " + schedule.name,
                       "costs of " + std::to_string(costs.stages.size()) + " stages",
                       "of all " + std::to_string(rank_of_stage.size()), ""});
  std::vector<StageCosts> by_stage = costs.stages;
  if (!by_stage.empty()) return by_stage;
  for (const int rank : rank_of_stage) {
    const double share = 1.0 / static_cast<double>(schedule.stages_of_rank[rank].size());
    by_stage.push_back({.forward = share * costs.forward,
                        .input_gradient = share * costs.input_gradient,
                        .weight_gradient = share * costs.weight_gradient,
                        .send_forward = costs.hop,
                        .send_backward = costs.hop});
  }
  return by_stage;
}

class Simulator {
 public:
  Simulator(const Schedule& schedule, const std::vector<StageCosts>& costs, const std::vector<int>& rank_of_stage)
      : schedule_(schedule),
        costs_(costs),
        rank_of_stage_(rank_of_stage),
        next_(schedule.ranks(), 0),
        clock_(schedule.ranks(), 0),
        forward_end_(schedule.stages(), schedule.microbatches, kNotYet),
        backward_end_(schedule.stages(), schedule.microbatches, kNotYet) {
    result_.timeline.resize(schedule.ranks());
    for (int rank = 0; rank < schedule.ranks(); ++rank) result_.timeline[rank].reserve(schedule.actions[rank].size());
  }

  Simulation run();

 private:
  int stages() const { return static_cast<int>(rank_of_stage_.size()); }
  double cost(const Action& action) const;
  double data_ready(const Action& action) const;
  bool step(int rank);
  void finish(const Action& action, double end);
  void wake_neighbours(const Action& action);

  const Schedule& schedule_;
  const std::vector<StageCosts>& costs_;
  const std::vector<int>& rank_of_stage_;
  std::vector<int> next_;
  std::vector<double> clock_;
  StageGrid<double> forward_end_;
  StageGrid<double> backward_end_;
  std::vector<int> to_try_;
  Simulation result_;
};

double Simulator::cost(const Action& action) const {
  const StageCosts& of = costs_[action.stage];
  switch (action.kind) {
    case ActionKind::kForward:
      return of.forward;
    case ActionKind::kInputGradient:
      return of.input_gradient;
    case ActionKind::kWeightGradient:
      return of.weight_gradient;
    case ActionKind::kBackward:
      return of.input_gradient + of.weight_gradient;
    default:
      break;
  }
  throw ConfigError({"simulation of schedule " + schedule_.name, to_string(action) + " is a message",
                     "the compute-only form", "leave the messages out"});
}

// When the data of the action is on its rank; kNotYet if a neighbour has still to make it.
double Simulator::data_ready(const Action& action) const {
  const int needed = stage_needed_by(action, stages());
  if (needed < 0) return 0;
  const bool forward = action.kind == ActionKind::kForward;
  const double end = (forward ? forward_end_ : backward_end_).at(needed, action.microbatch);
  if (end == kNotYet || rank_of_stage_[needed] == rank_of_stage_[action.stage]) return end;
  return end + (forward ? costs_[needed].send_forward : costs_[needed].send_backward);
}

void Simulator::finish(const Action& action, double end) {
  if (action.kind == ActionKind::kForward) forward_end_.at(action.stage, action.microbatch) = end;
  if (is_backward(action.kind)) backward_end_.at(action.stage, action.microbatch) = end;
  wake_neighbours(action);
}

void Simulator::wake_neighbours(const Action& action) {
  if (const auto send = send_after(action, rank_of_stage_))
    to_try_.push_back(rank_of_stage_[matching_message(*send).stage]);
}

// Runs the rank's next action, or overlapped pair, if its data will come; false if it has to wait for another rank.
bool Simulator::step(int rank) {
  const auto& row = schedule_.actions[rank];
  const int width = width_at(row, next_[rank]);
  double start = clock_[rank];
  for (int i = 0; i < width; ++i) {
    const double ready = data_ready(row[next_[rank] + i]);
    if (ready == kNotYet) return false;
    start = std::max(start, ready);
  }
  double time = start;
  for (int i = 0; i < width; ++i) {
    const Action& action = row[next_[rank] + i];
    const double end = time + cost(action);
    result_.timeline[rank].push_back({action, time, end});
    time = end;
  }
  for (int i = 0; i < width; ++i) finish(row[next_[rank] + i], time);
  clock_[rank] = time;
  next_[rank] += width;
  return true;
}

Simulation Simulator::run() {
  for (int rank = schedule_.ranks() - 1; rank >= 0; --rank) to_try_.push_back(rank);
  while (!to_try_.empty()) {
    const int rank = to_try_.back();
    to_try_.pop_back();
    while (next_[rank] < static_cast<int>(schedule_.actions[rank].size()) && step(rank)) {
    }
  }
  return std::move(result_);
}

struct Peaks {
  int activations = 0;
  double memory = 0;
};

// The most held at once. The row's order alone decides it, since a rank runs one action at a time.
Peaks peaks_of(const std::vector<TimedAction>& lane, bool has_backward, const std::vector<StageCosts>& costs) {
  Peaks held, peak;
  for (const auto& [action, start, end] : lane) {
    const StageCosts& of = costs[action.stage];
    if (action.kind == ActionKind::kForward) held.memory += of.activation, ++held.activations;
    peak = {std::max(peak.activations, held.activations), std::max(peak.memory, held.memory)};
    if (action.kind == ActionKind::kInputGradient) held.memory += of.weight_input - of.activation;
    if (action.kind == ActionKind::kWeightGradient) held.memory -= of.weight_input, --held.activations;
    if (action.kind == ActionKind::kBackward || (!has_backward && action.kind == ActionKind::kForward))
      held.memory -= of.activation, --held.activations;
    peak.memory = std::max(peak.memory, held.memory);  // an input of weights may be larger than its activation
  }
  return peak;
}

bool has_backward(const Schedule& schedule) {
  return std::ranges::any_of(schedule.actions, [](const auto& row) {
    return std::ranges::any_of(row, [](const Action& action) { return is_backward(action.kind); });
  });
}

double work_of(const std::vector<TimedAction>& lane) {
  double work = 0;
  for (const auto& [action, start, end] : lane) work += end - start;
  return work;
}

// What a rank computes in all.
double mean_work(const Simulation& simulation, const Schedule& schedule, const Costs& costs, bool trains) {
  if (costs.stages.empty())
    return schedule.microbatches * (costs.forward + (trains ? costs.input_gradient + costs.weight_gradient : 0));
  double work = 0;
  for (const auto& lane : simulation.timeline) work += work_of(lane);
  return work / schedule.ranks();
}

void measure_times(Simulation& simulation, double work) {
  double first_start = 0;
  double last_end = 0;
  bool any = false;
  for (const auto& lane : simulation.timeline) {
    if (lane.empty()) continue;
    first_start = any ? std::min(first_start, lane.front().start) : lane.front().start;
    last_end = std::max(last_end, lane.back().end);
    any = true;
    simulation.makespan_max_rank = std::max(simulation.makespan_max_rank, lane.back().end - lane.front().start);
  }
  simulation.makespan_global = last_end - first_start;
  if (simulation.makespan_max_rank > 0)
    simulation.bubble_rate = (simulation.makespan_max_rank - work) / simulation.makespan_max_rank;
}

}  // namespace

Simulation simulate(const Schedule& schedule, const Costs& costs) {
  validate(schedule);
  const std::vector<int> rank_of_stage = ranks_by_stage(schedule);
  const std::vector<StageCosts> by_stage = costs_by_stage(schedule, costs, rank_of_stage);
  Simulation simulation = Simulator(schedule, by_stage, rank_of_stage).run();
  const bool trains = has_backward(schedule);
  for (const auto& lane : simulation.timeline) {
    const Peaks peaks = peaks_of(lane, trains, by_stage);
    simulation.peak_activations.push_back(peaks.activations);
    simulation.peak_memory.push_back(peaks.memory);
  }
  measure_times(simulation, mean_work(simulation, schedule, costs, trains));
  return simulation;
}

}  // namespace gantry::schedule
