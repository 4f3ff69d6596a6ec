#include "gantry/schedule/generators/greedy.h"

#include <algorithm>
#include <tuple>

#include "gantry/schedule/action_table.h"
#include "gantry/schedule/generators/earliest_rank.h"
#include "gantry/schedule/simulate.h"

namespace gantry::schedule {
namespace {

constexpr double kNever = EarliestRank::kNever;
constexpr double kRounding = 1e-6;
constexpr std::size_t kMostSteps = 1'000'000;

// What goes first where a rank can do several things at once.
struct Rule {
  bool forward_first = false;    // before input gradients
  bool late_chunk_first = true;  // forwards of the chunk nearer to the loss
  double least_gap = 0;          // of a weight gradient's time that must be idle before one fills it
  bool weights_at_once = false;  // a weight gradient right after its input gradient where memory is short
};

class Greedy {
 public:
  Greedy(const Schedule& placed, const GreedyOptions& options, const Rule& rule)
      : result_(placed),
        options_(options),
        rule_(rule),
        rank_of_stage_(ranks_by_stage(placed)),
        forward_ready_(placed.stages(), placed.microbatches, kNever),
        backward_ready_(placed.stages(), placed.microbatches, kNever),
        next_forward_(placed.stages(), 0),
        next_backward_(placed.stages(), 0),
        clock_(placed.ranks(), 0),
        held_(placed.ranks(), 0),
        weights_(placed.ranks()),
        choices_(placed.ranks()),
        earliest_(placed.ranks()) {
    for (int microbatch = 0; microbatch < placed.microbatches; ++microbatch) forward_ready_.at(0, microbatch) = 0;
    for (int rank = 0; rank < placed.ranks(); ++rank) reconsider(rank);
  }

  // The earliest action of all ranks is never changed by what others do later: their results come after it. An action
  // changes what its own rank can do, and the rank that it hands its result to.
  Schedule run() {
    for (int rank = earliest_.rank(); rank >= 0; rank = earliest_.rank()) {
      const int receiver = commit(rank, choices_[rank]);
      reconsider(rank);
      if (receiver >= 0 && receiver != rank) reconsider(receiver);
    }
    return std::move(result_);
  }

 private:
  struct Choice {
    Action action;
    double start = kNever;
  };

  // Weight gradients not yet run, from `first` on.
  struct Waiting {
    std::vector<Action> actions;
    std::size_t first = 0;
    bool any() const { return first < actions.size(); }
  };

  int stages() const { return static_cast<int>(rank_of_stage_.size()); }

  void reconsider(int rank) {
    choices_[rank] = best(rank);
    earliest_.set(rank, choices_[rank].start);
  }

  Choice best(int rank) const;
  void consider_forward(int rank, int stage, int later_stages, Choice& best) const;
  Choice best_forward(int rank) const;
  Choice best_backward(int rank) const;
  double cost(ActionKind kind) const;
  int commit(int rank, const Choice& choice);

  Schedule result_;
  const GreedyOptions& options_;
  const Rule& rule_;
  std::vector<int> rank_of_stage_;
  StageGrid<double> forward_ready_, backward_ready_;  // when the data of an action is there
  std::vector<int> next_forward_, next_backward_;     // by stage
  std::vector<double> clock_;                         // by rank
  std::vector<double> held_;
  std::vector<Waiting> weights_;
  std::vector<Choice> choices_;  // by rank, what it would do next
  EarliestRank earliest_;
};

// A forward that is not the rank's last chunk leaves a place for one that is, or nothing would ever be let go.
void Greedy::consider_forward(int rank, int stage, int later_stages, Choice& best) const {
  const int microbatch = next_forward_[stage];
  if (microbatch == result_.microbatches || held_[rank] + 1 + later_stages > options_.limit + kRounding) return;
  const double start = std::max(clock_[rank], forward_ready_.at(stage, microbatch));
  if (start < best.start) best = {{ActionKind::kForward, stage, microbatch}, start};
}

// A rank's stages are in ascending order.
Greedy::Choice Greedy::best_forward(int rank) const {
  Choice best;
  const auto& stages = result_.stages_of_rank[rank];
  const int count = static_cast<int>(stages.size());
  for (int i = 0; i < count; ++i) {
    const int chunk = rule_.late_chunk_first ? count - 1 - i : i;
    consider_forward(rank, stages[chunk], count - 1 - chunk, best);
  }
  return best;
}

Greedy::Choice Greedy::best_backward(int rank) const {
  Choice best;
  const auto kind = options_.split_backward ? ActionKind::kInputGradient : ActionKind::kBackward;
  for (const int stage : result_.stages_of_rank[rank]) {
    const int microbatch = next_backward_[stage];
    if (microbatch == result_.microbatches) continue;
    const double start = std::max(clock_[rank], backward_ready_.at(stage, microbatch));
    if (start < best.start) best = {{kind, stage, microbatch}, start};
  }
  return best;
}

Greedy::Choice Greedy::best(int rank) const {
  const Choice forward = best_forward(rank), backward = best_backward(rank);
  const bool prefers_forward = rule_.forward_first ? forward.start <= backward.start : forward.start < backward.start;
  const Choice& first = prefers_forward ? forward : backward;
  if (!weights_[rank].any()) return first;
  // A weight gradient fills the time that would be idle, or makes room where memory is short.
  const double now = clock_[rank], idle = first.start - now;
  const bool short_of_room = rule_.weights_at_once && held_[rank] + 1 >= options_.limit;
  const bool fills = idle > 0 && idle >= rule_.least_gap * options_.weight_gradient;
  return short_of_room || fills ? Choice{weights_[rank].actions[weights_[rank].first], now} : first;
}

double Greedy::cost(ActionKind kind) const {
  if (kind == ActionKind::kForward) return options_.forward;
  if (kind == ActionKind::kInputGradient) return options_.input_gradient;
  if (kind == ActionKind::kWeightGradient) return options_.weight_gradient;
  return options_.input_gradient + options_.weight_gradient;
}

// The rank that gets the result, or -1.
int Greedy::commit(int rank, const Choice& choice) {
  const Action action = choice.action;
  const auto [kind, stage, microbatch] = std::tuple(action.kind, action.stage, action.microbatch);
  const double end = choice.start + cost(kind);
  clock_[rank] = end;
  result_.actions[rank].push_back(action);
  if (kind == ActionKind::kWeightGradient) {
    held_[rank] -= options_.waiting_share;
    ++weights_[rank].first;
    return -1;
  }
  const bool forward = kind == ActionKind::kForward;
  if (forward) {
    ++held_[rank];
    ++next_forward_[stage];
    if (stage + 1 == stages()) backward_ready_.at(stage, microbatch) = end;
  } else {
    ++next_backward_[stage];
    held_[rank] -= kind == ActionKind::kBackward ? 1 : 1 - options_.waiting_share;
    if (kind == ActionKind::kInputGradient)
      weights_[rank].actions.push_back({ActionKind::kWeightGradient, stage, microbatch});
  }
  const int next_stage = stage + (forward ? 1 : -1);
  if (next_stage < 0 || next_stage == stages()) return -1;
  const int receiver = rank_of_stage_[next_stage];
  (forward ? forward_ready_ : backward_ready_).at(next_stage, microbatch) = end + (receiver == rank ? 0 : options_.hop);
  return receiver;
}

}  // namespace

Length length_of(const Schedule& schedule, const GreedyOptions& options) {
  const auto chunks = static_cast<double>(schedule.stages_of_rank.front().size());
  const Simulation simulation = simulate(schedule, {.forward = options.forward * chunks,
                                                    .input_gradient = options.input_gradient * chunks,
                                                    .weight_gradient = options.weight_gradient * chunks,
                                                    .hop = options.hop});
  return {simulation.makespan_max_rank, simulation.makespan_global,
          static_cast<double>(std::ranges::max(simulation.peak_activations))};
}

Schedule make_greedy(const Schedule& placed, const GreedyOptions& options) {
  Schedule best;
  Length shortest{kNever, kNever, kNever};
  // Large pipelines try the rules that are best for most.
  const bool large = std::size_t{3} * placed.stages() * placed.microbatches * placed.ranks() > kMostSteps;
  const std::vector<double> gaps = large ? std::vector<double>{0.0} : std::vector<double>{0.0, 0.5, 1.0};
  for (const bool forward_first : {false, true})
    for (const bool late_chunk_first : {true, false})
      for (const bool weights_at_once : {false, true})
        for (const double least_gap : gaps) {
          const Rule rule{forward_first, late_chunk_first, least_gap, weights_at_once};
          Schedule made = Greedy(placed, options, rule).run();
          const Length length = length_of(made, options);
          if (length < shortest) shortest = length, best = std::move(made);
        }
  return best;
}

}  // namespace gantry::schedule
