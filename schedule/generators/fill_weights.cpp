#include "gantry/schedule/generators/fill_weights.h"

#include <algorithm>

#include "gantry/schedule/action_table.h"
#include "gantry/schedule/generators/earliest_rank.h"

namespace gantry::schedule {
namespace {

constexpr double kNever = EarliestRank::kNever;
constexpr double kRounding = 1e-6;
constexpr std::size_t kFarthest = 128;  // position that an early forward is taken from
constexpr std::size_t kWeight = static_cast<std::size_t>(-1);

struct Choice {
  double start = kNever;
  std::size_t position = kWeight;  // position in the order's row
};

// The state of a rank in its row.
struct RankProgress {
  std::size_t next = 0;
  double clock = 0;
  double first_start = kNever;
  double held = 0;              // counted as for options.limit
  int held_full = 0;            // from F to B or W
  int peak = 0;                 // maximum of held_whole
  std::vector<Action> waiting;  // input gradients whose weight gradient is still to run, from `first_waiting` on
  std::size_t first_waiting = 0;
  Choice choice;

  bool has_weight() const { return first_waiting < waiting.size(); }
};

class Filling {
 public:
  Filling(const Schedule& order, const OrderOptions& options, const FillRule& rule)
      : order_(order),
        options_(options),
        rule_(rule),
        result_(order),
        rank_of_stage_(ranks_by_stage(order)),
        forward_ready_(order.stages(), order.microbatches, kNever),
        backward_ready_(order.stages(), order.microbatches, kNever),
        next_forward_(rank_of_stage_.size(), 0),
        progress_(order.ranks()),
        earliest_(order.ranks()) {
    for (auto& row : result_.actions) {
      row.reserve(row.size() * 3 / 2 + 1);
      row.clear();
    }
    for (int microbatch = 0; microbatch < order.microbatches; ++microbatch) forward_ready_.at(0, microbatch) = 0;
    for (int rank = 0; rank < order.ranks(); ++rank) reconsider(rank);
  }

  // A commit changes the choices of its own rank and of the rank that receives its result.
  std::optional<FilledSchedule> run() {
    for (int rank = earliest_.rank(); rank >= 0; rank = earliest_.rank()) {
      const int receiver = commit(rank);
      reconsider(rank);
      if (receiver >= 0 && receiver != rank) reconsider(receiver);
    }
    if (!finished()) return std::nullopt;
    const Length length = measure();
    return FilledSchedule{std::move(result_), length};
  }

 private:
  int stages() const { return static_cast<int>(rank_of_stage_.size()); }

  bool finished() const {
    for (int rank = 0; rank < order_.ranks(); ++rank)
      if (progress_[rank].next < order_.actions[rank].size() || progress_[rank].has_weight()) return false;
    return true;
  }

  void reconsider(int rank) {
    progress_[rank].choice = next_of(rank);
    earliest_.set(rank, progress_[rank].choice.start);
  }

  double ready(const Action& action) const {
    const auto& times = action.kind == ActionKind::kForward ? forward_ready_ : backward_ready_;
    return times.at(action.stage, action.microbatch);
  }
  bool ran_early(const Action& action) const {
    return action.kind == ActionKind::kForward && action.microbatch < next_forward_[action.stage];
  }

  Choice next_of(int rank) const;
  Choice next_in_order(int rank) const;
  Choice early_forward(int rank, const Choice& in_order) const;
  int commit(int rank);
  void run_weight(int rank);
  void run_computation(int rank, const Action& action);
  Length measure() const;

  const Schedule& order_;
  const OrderOptions& options_;
  const FillRule& rule_;
  Schedule result_;
  std::vector<int> rank_of_stage_;
  StageGrid<double> forward_ready_, backward_ready_;
  std::vector<int> next_forward_;  // microbatch, by stage
  std::vector<RankProgress> progress_;
  EarliestRank earliest_;
};

Choice Filling::next_in_order(int rank) const {
  const RankProgress& at = progress_[rank];
  const auto& row = order_.actions[rank];
  Choice weight;
  if (at.has_weight()) weight.start = at.clock;
  if (at.next == row.size()) return weight;
  const Action& action = row[at.next];
  if (action.kind == ActionKind::kForward && at.held + 1 > options_.limit + kRounding) return weight;
  const double start = std::max(at.clock, ready(action)), idle = start - at.clock;
  const double least_gap = at.next + 1 >= row.size() ? rule_.final_gap : rule_.least_gap;
  if (at.has_weight() && idle > 0 && idle >= least_gap * options_.weight_gradient) return weight;
  return {start, at.next};
}

Choice Filling::next_of(int rank) const {
  const Choice in_order = next_in_order(rank);
  const bool idles = in_order.position != kWeight && in_order.start > progress_[rank].clock;
  return rule_.early_forwards && idles ? early_forward(rank, in_order) : in_order;
}

// A forward from a later position in the row that can start before the next action, if the memory limit allows it until
// its turn.
Choice Filling::early_forward(int rank, const Choice& in_order) const {
  const RankProgress& at = progress_[rank];
  const auto& row = order_.actions[rank];
  const std::size_t end = std::min(row.size(), at.next + kFarthest);
  double held = at.held;
  for (std::size_t position = at.next; position < end && held + 1 <= options_.limit + kRounding; ++position) {
    const Action& action = row[position];
    if (ran_early(action)) continue;
    if (action.kind != ActionKind::kForward) {
      --held;
      continue;
    }
    const int spared = action.stage == order_.stages_of_rank[rank].front() ? rule_.spared : 0;
    const double start = std::max(at.clock, ready(action));
    const bool is_next = action.microbatch == next_forward_[action.stage];
    if (is_next && held + 1 + spared <= options_.limit + kRounding && start < in_order.start) return {start, position};
    ++held;
  }
  return in_order;
}

void Filling::run_weight(int rank) {
  RankProgress& at = progress_[rank];
  const Action& input = at.waiting[at.first_waiting++];
  result_.actions[rank].push_back({ActionKind::kWeightGradient, input.stage, input.microbatch});
  at.clock = at.choice.start + options_.weight_gradient;
  at.held -= options_.waiting_share;
  --at.held_full;
}

void Filling::run_computation(int rank, const Action& action) {
  RankProgress& at = progress_[rank];
  result_.actions[rank].push_back(action);
  if (action.kind == ActionKind::kForward) {
    at.clock = at.choice.start + options_.forward;
    ++next_forward_[action.stage];
    ++at.held;
    at.peak = std::max(at.peak, ++at.held_full);
    if (action.stage + 1 == stages()) backward_ready_.at(action.stage, action.microbatch) = at.clock;
    return;
  }
  const bool split = action.kind == ActionKind::kInputGradient;
  at.clock = at.choice.start + options_.input_gradient + (split ? 0 : options_.weight_gradient);
  at.held -= split ? 1 - options_.waiting_share : 1;
  if (split)
    at.waiting.push_back(action);
  else
    --at.held_full;
}

// Executes the rank's choice. Returns the rank that receives its result, or -1.
int Filling::commit(int rank) {
  RankProgress& at = progress_[rank];
  at.first_start = std::min(at.first_start, at.choice.start);
  if (at.choice.position == kWeight) {
    run_weight(rank);
    return -1;
  }
  const auto& row = order_.actions[rank];
  const Action& action = row[at.choice.position];
  run_computation(rank, action);
  if (at.choice.position == at.next) ++at.next;
  while (at.next < row.size() && ran_early(row[at.next])) ++at.next;
  const bool forward = action.kind == ActionKind::kForward;
  const int next_stage = action.stage + (forward ? 1 : -1);
  if (next_stage < 0 || next_stage == stages()) return -1;
  const int receiver = rank_of_stage_[next_stage];
  (forward ? forward_ready_ : backward_ready_).at(next_stage, action.microbatch) =
      at.clock + (receiver == rank ? 0 : options_.hop);
  return receiver;
}

Length Filling::measure() const {
  double longest = 0, first = kNever, last = 0;
  int peak = 0;
  for (const RankProgress& at : progress_) {
    longest = std::max(longest, at.clock - at.first_start);
    first = std::min(first, at.first_start);
    last = std::max(last, at.clock);
    peak = std::max(peak, at.peak);
  }
  return {longest, last - first, static_cast<double>(peak)};
}

}  // namespace

std::optional<FilledSchedule> fill_weights(const Schedule& order, const OrderOptions& options, const FillRule& rule) {
  return Filling(order, options, rule).run();
}

}  // namespace gantry::schedule
