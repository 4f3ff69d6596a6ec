#include "gantry/schedule/simulate.h"

#include <algorithm>
#include <map>
#include <utility>

#include "gantry/core/error.h"
#include "gantry/schedule/action_table.h"
#include "gantry/schedule/extra_actions.h"
#include "gantry/schedule/simulate_valid.h"
#include "gantry/schedule/simulated_memory.h"
#include "gantry/schedule/validate.h"
#include "gantry/schedule/vocabulary_actions.h"

namespace gantry::schedule {
namespace {

constexpr double kNotYet = -1;

// The costs of every stage.
std::vector<StageCosts> costs_by_stage(const Schedule& schedule, const Costs& costs,
                                       const std::vector<int>& rank_of_stage) {
  if (!costs.stages.empty() && costs.stages.size() != rank_of_stage.size())
    throw ConfigError({"simulation of schedule " + schedule.name,
                       "costs for " + std::to_string(costs.stages.size()) + " stages",
                       "costs for all " + std::to_string(rank_of_stage.size()), ""});
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
  Simulator(const Schedule& schedule, const std::vector<StageCosts>& costs, const VocabularyCosts& of_vocabulary,
            const std::vector<int>& rank_of_stage)
      : schedule_(schedule),
        costs_(costs),
        of_vocabulary_(of_vocabulary),
        rank_of_stage_(rank_of_stage),
        next_(schedule.ranks(), 0),
        clock_(schedule.ranks(), 0),
        forward_end_(schedule.stages(), schedule.microbatches, kNotYet),
        backward_end_(schedule.stages(), schedule.microbatches, kNotYet),
        pass_end_(has_vocabulary(schedule) ? kVocabularyKinds.size() : 0,
                  StageGrid<double>(schedule.stages(), schedule.microbatches, kNotYet)),
        extra_(schedule.ranks(), 0),
        unsharded_(schedule.stages(), 0),
        reloaded_(schedule.stages(), schedule.microbatches, 0) {
    if (!pass_end_.empty()) vocabulary_.emplace(schedule);
    result_.timeline.resize(schedule.ranks());
    result_.extra.resize(schedule.ranks());
    for (int rank = 0; rank < schedule.ranks(); ++rank) result_.timeline[rank].reserve(schedule.actions[rank].size());
  }

  Simulation run();

 private:
  int stages() const { return static_cast<int>(rank_of_stage_.size()); }
  double cost(const Action& action) const;
  StageGrid<double>& ends_of(ActionKind kind);
  double vocabulary_ready(const Action& action);
  double data_ready(const Action& action);
  bool step(int rank);
  void start_extra(int rank, const Action& action);
  void finish(const Action& action, double end);
  void wake_neighbours(const Action& action);
  bool is_awaited_by_all(const Action& action);

  const Schedule& schedule_;
  const std::vector<StageCosts>& costs_;
  const VocabularyCosts& of_vocabulary_;
  const std::vector<int>& rank_of_stage_;
  std::optional<VocabularyNeeds> vocabulary_;
  std::vector<int> next_;
  std::vector<double> clock_;
  StageGrid<double> forward_end_;
  StageGrid<double> backward_end_;
  std::map<std::pair<ActionKind, int>, int> passed_;  // number of ranks, by kind of pass and microbatch
  std::vector<StageGrid<double>> pass_end_;           // kVocabularyKinds, by the stage in their notation
  std::vector<double> extra_;                         // by rank: end of its last extra action
  std::vector<double> unsharded_;                     // by stage: end of its last gather
  StageGrid<double> reloaded_;                        // time at which offloaded activations are back
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
    case ActionKind::kEmbeddingForward:
      return of_vocabulary_.embedding_forward;
    case ActionKind::kEmbeddingBackward:
      return of_vocabulary_.embedding_backward;
    case ActionKind::kHeadForward:
      return of_vocabulary_.head_forward;
    case ActionKind::kHeadCombine:
      return of_vocabulary_.head_combine;
    case ActionKind::kHeadBackward:
      return of_vocabulary_.head_backward;
    default:
      break;
  }
  throw ConfigError({"simulation of schedule " + schedule_.name, to_string(action) + " is a message",
                     "the compute-only form", "leave the messages out"});
}

StageGrid<double>& Simulator::ends_of(ActionKind kind) {
  if (is_of_vocabulary(kind))
    return pass_end_.at(static_cast<std::size_t>(kind) - static_cast<std::size_t>(ActionKind::kEmbeddingForward));
  return kind == ActionKind::kForward ? forward_end_ : backward_end_;
}

// The latest end of the passes that produce its input; 0 if none do.
double Simulator::vocabulary_ready(const Action& action) {
  double ready = 0;
  for (const Need& need : vocabulary_->of(action)) {
    if (need.begun) continue;  // the lookup costs no time
    const double end = ends_of(need.action.kind).at(need.action.stage, need.action.microbatch);
    if (end == kNotYet) return kNotYet;
    const bool is_here = rank_of_stage_[need.action.stage] == rank_of_stage_[action.stage];
    ready = std::max(ready, is_here ? end : end + costs_.front().send_forward);
  }
  return ready;
}

// The time at which the data of the action are on its rank; kNotYet if a neighbour still has to produce them.
double Simulator::data_ready(const Action& action) {
  const int needed = stage_needed_by(action, stages());
  if (needed < 0) return vocabulary_ ? vocabulary_ready(action) : 0;
  const bool forward = action.kind == ActionKind::kForward;
  const double end = (forward ? forward_end_ : backward_end_).at(needed, action.microbatch);
  if (end == kNotYet || rank_of_stage_[needed] == rank_of_stage_[action.stage]) return end;
  return end + (forward ? costs_[needed].send_forward : costs_[needed].send_backward);
}

void Simulator::finish(const Action& action, double end) {
  if (action.kind == ActionKind::kForward) forward_end_.at(action.stage, action.microbatch) = end;
  if (is_backward(action.kind)) backward_end_.at(action.stage, action.microbatch) = end;
  if (is_of_vocabulary(action.kind)) ends_of(action.kind).at(action.stage, action.microbatch) = end;
  wake_neighbours(action);
  if (vocabulary_ && is_awaited_by_all(action))
    for (int rank = 0; rank < schedule_.ranks(); ++rank) to_try_.push_back(rank);
}

// The inputs of passes, and the last part of a pass over all ranks.
bool Simulator::is_awaited_by_all(const Action& action) {
  if (action.kind == ActionKind::kForward) return action.stage == stages() - 1;
  if (is_backward(action.kind)) return action.stage == 0;
  return is_of_vocabulary(action.kind) && ++passed_[{action.kind, action.microbatch}] == schedule_.ranks();
}

void Simulator::wake_neighbours(const Action& action) {
  if (const auto send = send_after(action, rank_of_stage_))
    to_try_.push_back(rank_of_stage_[matching_message(*send).stage]);
}

void Simulator::start_extra(int rank, const Action& action) {
  const double seconds = extra_cost(action, costs_[action.stage]).seconds;
  // Actions that take no time, such as a release, wait for no other action.
  const double start = seconds > 0 ? std::max(clock_[rank], extra_[rank]) : clock_[rank];
  if (seconds > 0) extra_[rank] = start + seconds;
  if (action.kind == ActionKind::kUnshard) unsharded_[action.stage] = start + seconds;
  if (action.kind == ActionKind::kReload) reloaded_.at(action.stage, action.microbatch) = start + seconds;
  result_.extra[rank].push_back({action, start, start + seconds});
}

// Executes the rank's next action or overlapped pair if its data will arrive; returns false if it has to wait for
// another rank.
bool Simulator::step(int rank) {
  const auto& row = schedule_.actions[rank];
  if (const Action& action = row[next_[rank]]; action.is_extra()) {
    start_extra(rank, action);
    ++next_[rank];
    return true;
  }
  const int width = width_at(row, next_[rank]);
  double start = clock_[rank];
  for (int i = 0; i < width; ++i) {
    const double ready = data_ready(row[next_[rank] + i]);
    if (ready == kNotYet) return false;
    start = std::max(start, ready);
    const Action& action = row[next_[rank] + i];
    if (waits_for(action, ActionKind::kUnshard)) start = std::max(start, unsharded_[action.stage]);
    if (is_backward(action.kind)) start = std::max(start, reloaded_.at(action.stage, action.microbatch));
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

// The passes of one microbatch on a rank.
double vocabulary_work(const Schedule& schedule, const VocabularyCosts& costs, bool trains) {
  if (!has_vocabulary(schedule)) return 0;
  if (!trains) return costs.embedding_forward + costs.head_forward;
  return costs.sum() - (algorithm_of(schedule) == 1 ? costs.head_combine : 0);
}

// The total computation time of a rank.
double mean_work(const Simulation& simulation, const Schedule& schedule, const Costs& costs, bool trains) {
  if (costs.stages.empty())
    return schedule.microbatches * (costs.forward + (trains ? costs.input_gradient + costs.weight_gradient : 0) +
                                    vocabulary_work(schedule, costs.vocabulary, trains));
  double work = 0;
  for (const auto& lane : simulation.timeline) work += work_of(lane);
  return work / schedule.ranks();
}

void measure_times(Simulation& simulation, double work) {
  double first_start = 0;
  double last_end = 0;
  bool any = false;
  for (std::size_t rank = 0; rank < simulation.timeline.size(); ++rank) {
    const auto &lane = simulation.timeline[rank], &extra = simulation.extra[rank];
    if (lane.empty()) continue;
    double start = lane.front().start, end = lane.back().end;
    if (!extra.empty()) start = std::min(start, extra.front().start);
    for (const auto& timed : extra) end = std::max(end, timed.end);
    first_start = any ? std::min(first_start, start) : start;
    last_end = std::max(last_end, end);
    any = true;
    simulation.makespan_max_rank = std::max(simulation.makespan_max_rank, end - start);
  }
  simulation.makespan_global = last_end - first_start;
  if (simulation.makespan_max_rank > 0)
    simulation.bubble_rate = (simulation.makespan_max_rank - work) / simulation.makespan_max_rank;
}

}  // namespace

std::vector<StageCosts> stage_costs(const Schedule& schedule, const Costs& costs) {
  return costs_by_stage(schedule, costs, ranks_by_stage(schedule));
}

Simulation simulate(const Schedule& schedule, const Costs& costs) {
  validate(schedule);
  return simulate_valid(schedule, costs);
}

Simulation simulate_valid(const Schedule& schedule, const Costs& costs) {
  const std::vector<int> rank_of_stage = ranks_by_stage(schedule);
  const std::vector<StageCosts> by_stage = costs_by_stage(schedule, costs, rank_of_stage);
  Simulation simulation = Simulator(schedule, by_stage, costs.vocabulary, rank_of_stage).run();
  const bool trains = has_backward(schedule);
  for (const auto& row : schedule.actions) simulation.peak_activations.push_back(peak_activations(row, trains));
  measure_memory(simulation, schedule, trains, by_stage);
  measure_times(simulation, mean_work(simulation, schedule, costs, trains));
  return simulation;
}

}  // namespace gantry::schedule
