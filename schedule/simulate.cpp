#include "gantry/schedule/simulate.h"

#include <algorithm>

#include "gantry/core/error.h"
#include "gantry/schedule/action_table.h"
#include "gantry/schedule/validate.h"

namespace gantry::schedule {
namespace {

constexpr double kNotYet = -1;

class Simulator {
 public:
  Simulator(const Schedule& schedule, const Costs& costs)
      : schedule_(schedule),
        costs_(costs),
        rank_of_stage_(ranks_by_stage(schedule)),
        next_(schedule.ranks(), 0),
        clock_(schedule.ranks(), 0),
        forward_end_(schedule.stages(), schedule.microbatches, kNotYet),
        backward_end_(schedule.stages(), schedule.microbatches, kNotYet) {
    result_.timeline.resize(schedule.ranks());
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
  const Costs& costs_;
  std::vector<int> rank_of_stage_;
  std::vector<int> next_;
  std::vector<double> clock_;
  StageGrid<double> forward_end_;
  StageGrid<double> backward_end_;
  std::vector<int> to_try_;
  Simulation result_;
};

double Simulator::cost(const Action& action) const {
  const double share = 1.0 / static_cast<double>(schedule_.stages_of_rank[rank_of_stage_[action.stage]].size());
  switch (action.kind) {
    case ActionKind::kForward:
      return share * costs_.forward;
    case ActionKind::kInputGradient:
      return share * costs_.input_gradient;
    case ActionKind::kWeightGradient:
      return share * costs_.weight_gradient;
    case ActionKind::kBackward:
      return share * (costs_.input_gradient + costs_.weight_gradient);
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
  const auto& ends = action.kind == ActionKind::kForward ? forward_end_ : backward_end_;
  const double end = ends.at(needed, action.microbatch);
  if (end == kNotYet) return kNotYet;
  return rank_of_stage_[needed] == rank_of_stage_[action.stage] ? end : end + costs_.hop;
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

// The most chunk activations held at once. The row's order alone decides it, since a rank runs one action at a time.
int peak_activations(const std::vector<TimedAction>& lane, bool has_backward) {
  int held = 0;
  int peak = 0;
  for (const auto& [action, start, end] : lane) {
    if (action.kind == ActionKind::kForward) peak = std::max(peak, ++held);
    const bool frees = has_backward ? action.kind == ActionKind::kBackward || action.kind == ActionKind::kWeightGradient
                                    : action.kind == ActionKind::kForward;
    if (frees) --held;
  }
  return peak;
}

bool has_backward(const Schedule& schedule) {
  return std::ranges::any_of(schedule.actions, [](const auto& row) {
    return std::ranges::any_of(row, [](const Action& action) { return is_backward(action.kind); });
  });
}

void measure(Simulation& simulation, const Schedule& schedule, const Costs& costs) {
  double first_start = 0;
  double last_end = 0;
  bool any = false;
  const bool trains = has_backward(schedule);
  for (const auto& lane : simulation.timeline) {
    simulation.peak_activations.push_back(peak_activations(lane, trains));
    if (lane.empty()) continue;
    first_start = any ? std::min(first_start, lane.front().start) : lane.front().start;
    last_end = std::max(last_end, lane.back().end);
    any = true;
    simulation.makespan_max_rank = std::max(simulation.makespan_max_rank, lane.back().end - lane.front().start);
  }
  simulation.makespan_global = last_end - first_start;
  const double work =
      schedule.microbatches * (costs.forward + (trains ? costs.input_gradient + costs.weight_gradient : 0));
  if (simulation.makespan_max_rank > 0)
    simulation.bubble_rate = (simulation.makespan_max_rank - work) / simulation.makespan_max_rank;
}

}  // namespace

Simulation simulate(const Schedule& schedule, const Costs& costs) {
  validate(schedule);
  Simulation simulation = Simulator(schedule, costs).run();
  measure(simulation, schedule, costs);
  return simulation;
}

}  // namespace gantry::schedule
