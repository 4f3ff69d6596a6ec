#include <algorithm>
#include <limits>
#include <optional>

#include "gantry/core/error.h"
#include "gantry/schedule/action_table.h"
#include "gantry/schedule/vocabulary_actions.h"

namespace gantry::schedule {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::infinity();
// Maximum numbers of embedding lookups ahead of the forwards of the first stage, and of waiting gradients of these
// rows.
constexpr int kEmbeddedAhead = 2, kGradientsWaiting = 2;
// Maximum number of microbatches whose logits may wait for the head gradients.
constexpr int kLogitsWaiting = 2;
// Maximum number of additional forwards ahead per chunk, and the reduction of the step time that one more must gain.
constexpr int kMostAhead = 4;
constexpr double kGain = 0.995;

// The row with `ahead` more forwards ahead. Forwards keep their order, and so do all other actions.
std::vector<Action> ahead_by(const std::vector<Action>& row, int ahead) {
  std::vector<Action> forwards, shifted;
  for (const Action& action : row)
    if (action.kind == ActionKind::kForward) forwards.push_back(action);
  std::size_t next = 0;
  bool ramp = true;
  for (const Action& action : row) {
    if (action.kind != ActionKind::kForward && ramp) {
      ramp = false;
      for (int i = 0; i < ahead && next < forwards.size(); ++i) shifted.push_back(forwards[next++]);
    }
    if (action.kind != ActionKind::kForward)
      shifted.push_back(action);
    else if (next < forwards.size())
      shifted.push_back(forwards[next++]);
  }
  return shifted;
}

// One kind of pass: the order of its microbatches, the progress of each rank, and when all ranks have finished one.
struct Passes {
  ActionKind kind;
  double cost = 0;
  std::vector<int> order = {};   // microbatches
  std::vector<int> next = {};    // by rank: an index into the order
  std::vector<int> done = {};    // by microbatch: number of ranks
  std::vector<double> end = {};  // by microbatch: end on the last of these ranks
};

// Executes all ranks in simulated time. The action that can start first is executed; of several, passes that other
// ranks wait for take precedence.
class VocabularyPlacing {
 public:
  VocabularyPlacing(const Schedule& schedule, const Costs& costs, int algorithm, int ahead);
  // Returns nothing if a rank would take `limit` or longer, or if no order is found.
  std::optional<Schedule> run(double limit = kUnknown);

  double longest() const { return longest_; }

 private:
  struct Choice {
    double start = kUnknown;
    int priority = 0;
    Passes* pass = nullptr;  // null: the next action of the rank's own row
  };
  Passes make_passes(ActionKind kind, double cost, std::vector<int> order) const;
  double end_of(const Passes& passes, int microbatch) const;
  double own_ready(const Action& action) const;
  double pass_ready(const Passes& pass, int rank) const;
  Choice choose(int rank);
  void consider_weights(Choice& best, int rank, bool has_own);
  void consider(Choice& best, double ready, int rank, int priority, Passes* pass) const;
  void take(int rank, const Choice& choice);
  double cost_of(const Action& action) const;

  Schedule result_;
  std::vector<std::vector<Action>> rows_;
  std::vector<StageCosts> costs_;
  std::vector<int> rank_of_stage_;
  std::vector<std::size_t> next_;
  std::vector<double> clock_, begin_, left_;  // left_: work that is not finished
  StageGrid<double> forward_end_, backward_end_;
  Passes embed_, embed_backward_, head_, combine_, head_backward_;
  const Passes* before_backward_;  // inputs of the last stage's backward from all ranks
  int forwards_of_first_ = 0;
  double longest_ = 0;
};

std::vector<int> order_of_stage(const std::vector<Action>& row, int stage, bool forwards) {
  std::vector<int> order;
  for (const Action& action : row)
    if (action.stage == stage && (forwards ? action.kind == ActionKind::kForward : is_backward(action.kind)))
      order.push_back(action.microbatch);
  return order;
}

Passes VocabularyPlacing::make_passes(ActionKind kind, double cost, std::vector<int> order) const {
  Passes passes{kind, cost, std::move(order)};
  passes.next.assign(result_.ranks(), 0);
  passes.done.assign(result_.microbatches, 0);
  passes.end.assign(result_.microbatches, 0);
  return passes;
}

VocabularyPlacing::VocabularyPlacing(const Schedule& schedule, const Costs& costs, int algorithm, int ahead)
    : result_(schedule),
      costs_(stage_costs(schedule, costs)),
      rank_of_stage_(ranks_by_stage(schedule)),
      next_(schedule.ranks(), 0),
      clock_(schedule.ranks(), 0),
      begin_(schedule.ranks(), kUnknown),
      forward_end_(schedule.stages(), schedule.microbatches, kUnknown),
      backward_end_(schedule.stages(), schedule.microbatches, kUnknown),
      before_backward_(algorithm == 1 ? &head_backward_ : &combine_) {
  for (auto& row : result_.actions) {
    rows_.push_back(ahead_by(row, ahead));
    row.clear();
  }
  const int last = schedule.stages() - 1;
  const auto &first_row = rows_[rank_of_stage_[0]], &last_row = rows_[rank_of_stage_[last]];
  const VocabularyCosts& of = costs.vocabulary;
  embed_ = make_passes(ActionKind::kEmbeddingForward, of.embedding_forward, order_of_stage(first_row, 0, true));
  embed_backward_ =
      make_passes(ActionKind::kEmbeddingBackward, of.embedding_backward, order_of_stage(first_row, 0, false));
  head_ = make_passes(ActionKind::kHeadForward, of.head_forward, order_of_stage(last_row, last, true));
  combine_ = make_passes(ActionKind::kHeadCombine, of.head_combine,
                         algorithm == 1 ? std::vector<int>() : order_of_stage(last_row, last, false));
  head_backward_ = make_passes(ActionKind::kHeadBackward, of.head_backward, order_of_stage(last_row, last, false));
  double of_passes = 0;
  for (const Passes* pass : {&embed_, &embed_backward_, &head_, &combine_, &head_backward_})
    of_passes += pass->cost * static_cast<double>(pass->order.size());
  for (const auto& row : rows_) {
    left_.push_back(of_passes);
    for (const Action& action : row) left_.back() += cost_of(action);
  }
}

double VocabularyPlacing::cost_of(const Action& action) const {
  const StageCosts& of = costs_[action.stage];
  if (action.kind == ActionKind::kForward) return of.forward;
  if (action.kind == ActionKind::kInputGradient) return of.input_gradient;
  return action.kind == ActionKind::kWeightGradient ? of.weight_gradient : of.input_gradient + of.weight_gradient;
}

// The time on all ranks; kUnknown while a rank has not started.
double VocabularyPlacing::end_of(const Passes& passes, int microbatch) const {
  if (passes.done[microbatch] < result_.ranks()) return kUnknown;
  return passes.end[microbatch];
}

// The time at which the action's data are available; kUnknown if it is not known yet.
double VocabularyPlacing::own_ready(const Action& action) const {
  const int stages = static_cast<int>(rank_of_stage_.size()), microbatch = action.microbatch;
  const bool forward = action.kind == ActionKind::kForward;
  double ready = 0;
  if (const int needed = stage_needed_by(action, stages); needed >= 0) {
    ready = (forward ? forward_end_ : backward_end_).at(needed, microbatch);
    if (rank_of_stage_[needed] != rank_of_stage_[action.stage])
      ready += forward ? costs_[needed].send_forward : costs_[needed].send_backward;
  }
  if (forward && action.stage == 0) ready = std::max(ready, end_of(embed_, microbatch));
  if (is_backward(action.kind) && action.stage == stages - 1)
    ready = std::max(ready, end_of(*before_backward_, microbatch));
  return ready;
}

double VocabularyPlacing::pass_ready(const Passes& pass, int rank) const {
  if (pass.next[rank] == static_cast<int>(pass.order.size())) return kUnknown;
  const int microbatch = pass.order[pass.next[rank]];
  const int last = static_cast<int>(rank_of_stage_.size()) - 1;
  // All ranks have posted its message as soon as they have started the previous one.
  const bool is_posted_ahead = pass.kind == ActionKind::kHeadForward || pass.kind == ActionKind::kEmbeddingBackward;
  if (is_posted_ahead && pass.next[rank] > 0 && pass.done[pass.order[pass.next[rank] - 1]] < result_.ranks())
    return kUnknown;
  switch (pass.kind) {
    case ActionKind::kHeadForward:
      return forward_end_.at(last, microbatch) + (rank == rank_of_stage_[last] ? 0 : costs_.front().send_forward);
    case ActionKind::kHeadCombine:
    case ActionKind::kHeadBackward:
      return end_of(head_, microbatch) + costs_.front().send_forward;
    case ActionKind::kEmbeddingBackward:
      return backward_end_.at(0, microbatch) + (rank == rank_of_stage_[0] ? 0 : costs_.front().send_forward);
    default:
      return 0;
  }
}

void VocabularyPlacing::consider(Choice& best, double ready, int rank, int priority, Passes* pass) const {
  const double start = std::max(ready, clock_[rank]);
  if (start < best.start || (start == best.start && start != kUnknown && priority > best.priority))
    best = {start, priority, pass};
}

// Algorithm 2: no rank waits for the head gradients, so they fill idle time. The logits are kept until then.
void VocabularyPlacing::consider_weights(Choice& best, int rank, bool has_own) {
  const bool others_wait = before_backward_ == &head_backward_;
  const bool fills = !others_wait && has_own && head_.next[rank] - head_backward_.next[rank] < kLogitsWaiting;
  consider(best, pass_ready(head_backward_, rank), rank, fills ? 1 : 5, &head_backward_);
}

VocabularyPlacing::Choice VocabularyPlacing::choose(int rank) {
  Choice best;
  const bool has_own = next_[rank] < rows_[rank].size();
  if (has_own) consider(best, own_ready(rows_[rank][next_[rank]]), rank, 3, nullptr);
  consider(best, pass_ready(head_, rank), rank, 6, &head_);
  consider(best, pass_ready(combine_, rank), rank, 7, &combine_);
  consider_weights(best, rank, has_own);
  if (embed_.next[rank] < forwards_of_first_ + kEmbeddedAhead)
    consider(best, pass_ready(embed_, rank), rank, 4, &embed_);
  int waiting = 0;  // clipped to the relevant part: they end in this order
  for (int i = embed_backward_.next[rank];
       i < static_cast<int>(embed_backward_.order.size()) && waiting < kGradientsWaiting &&
       backward_end_.at(0, embed_backward_.order[i]) <= clock_[rank];
       ++i)
    ++waiting;
  if (waiting > 0 || !has_own)
    consider(best, pass_ready(embed_backward_, rank), rank, waiting >= kGradientsWaiting ? 4 : 1, &embed_backward_);
  return best;
}

void VocabularyPlacing::take(int rank, const Choice& choice) {
  begin_[rank] = std::min(begin_[rank], choice.start);
  if (choice.pass) {
    Passes& pass = *choice.pass;
    const int microbatch = pass.order[pass.next[rank]++];
    clock_[rank] = choice.start + pass.cost;
    left_[rank] -= pass.cost;
    ++pass.done[microbatch];
    pass.end[microbatch] = std::max(pass.end[microbatch], clock_[rank]);
    result_.actions[rank].push_back({pass.kind, vocabulary_stage(result_, rank), microbatch});
    return;
  }
  const Action& action = rows_[rank][next_[rank]++];
  clock_[rank] = choice.start + cost_of(action);
  left_[rank] -= cost_of(action);
  if (action.kind == ActionKind::kForward) forward_end_.at(action.stage, action.microbatch) = clock_[rank];
  if (is_backward(action.kind)) backward_end_.at(action.stage, action.microbatch) = clock_[rank];
  forwards_of_first_ += action.kind == ActionKind::kForward && action.stage == 0;
  result_.actions[rank].push_back(action);
}

std::optional<Schedule> VocabularyPlacing::run(double limit) {
  const auto finished = [&](int rank) {
    const auto is_done = [&](const Passes& pass) { return pass.next[rank] == static_cast<int>(pass.order.size()); };
    return next_[rank] == rows_[rank].size() && is_done(embed_) && is_done(head_) && is_done(combine_) &&
           is_done(head_backward_) && is_done(embed_backward_);
  };
  for (;;) {
    Choice best;
    int best_rank = -1;
    bool all = true;
    for (int rank = 0; rank < result_.ranks(); ++rank) {
      if (finished(rank)) continue;
      all = false;
      if (const Choice choice = choose(rank); best_rank < 0 || choice.start < best.start)
        best = choice, best_rank = rank;
    }
    if (all) break;
    if (best.start == kUnknown) return std::nullopt;
    take(best_rank, best);
    if (clock_[best_rank] + left_[best_rank] - begin_[best_rank] >= limit) return std::nullopt;
  }
  for (int rank = 0; rank < result_.ranks(); ++rank) longest_ = std::max(longest_, clock_[rank] - begin_[rank]);
  return std::move(result_);
}

void refuse_pairs(const Schedule& schedule) {
  if (schedule.has_pairs())
    throw ConfigError({"parallel.vocabulary",
                       "schedule " + schedule.name +
                           " runs forwards and backwards in pairs, so parallel.vocabulary cannot be pipeline",
                       "a schedule without pairs, such as 1f1b, interleaved_1f1b, zb_h1 or v_half",
                       "choose another schedule, or remove parallel.vocabulary"});
}

}  // namespace

std::optional<Schedule> with_vocabulary(const Schedule& schedule, const Costs& costs, int algorithm, int ahead) {
  refuse_pairs(schedule);
  return VocabularyPlacing(schedule, costs, algorithm, ahead).run();
}

Schedule with_vocabulary(const Schedule& schedule, const Costs& costs, int algorithm) {
  refuse_pairs(schedule);
  std::size_t chunks = 1;
  for (const auto& held : schedule.stages_of_rank) chunks = std::max(chunks, held.size());
  std::optional<Schedule> best;
  double shortest = kUnknown;
  for (int ahead = 0; ahead <= kMostAhead * static_cast<int>(chunks); ++ahead) {
    VocabularyPlacing placing(schedule, costs, algorithm, ahead);
    auto made = placing.run(kGain * shortest);
    if (!made) continue;
    shortest = placing.longest();
    best = std::move(made);
  }
  if (!best)
    throw InternalError(
        {"schedule " + schedule.name, "the schedule has no position for the vocabulary passes", "", ""});
  return *best;
}

}  // namespace gantry::schedule
