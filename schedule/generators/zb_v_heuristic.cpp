#include "gantry/schedule/generators/zb_v_heuristic.h"

#include <algorithm>
#include <array>
#include <optional>

#include "gantry/schedule/generators/rank_clock.h"
#include "gantry/schedule/generators/v_placement.h"

namespace gantry::schedule {
namespace {

// Whether weight gradients fill gaps that are shorter than themselves, before forwards and before backwards of the near
// chunk. Before backwards of the far chunk they always do.
struct ZbVRule {
  bool before_forwards;
  bool before_backwards;
};

class ZbVAttempt {
 public:
  // `allowed` is the idle time of each rank in the previous attempt; the largest one limits the idle time of the
  // others. Empty at first.
  ZbVAttempt(const Schedule& placed, const OrderOptions& options, const ZbVRule& rule, std::vector<double> allowed)
      : options_(options), rule_(rule), allowed_(std::move(allowed)), result_(placed), ranks_(placed.ranks()) {}

  void run();
  std::vector<double> idle() const;
  Schedule& result() { return result_; }

 private:
  struct Rank {
    RankClock clock;
    double held = 0;
    std::array<std::vector<double>, kVLegs> ends;  // by microbatch
    std::vector<Action> weights;                   // weight gradients of all backwards; from `next_weight` on they wait
    std::size_t next_weight = 0;

    int ran(int leg) const { return static_cast<int>(ends[leg].size()); }
    int forwards() const { return ran(kForwardDown) + ran(kForwardUp); }
    bool has_weight() const { return next_weight < weights.size(); }
  };

  int count() const { return static_cast<int>(ranks_.size()); }
  int microbatches() const { return result_.microbatches; }
  bool is_first_on(int leg, int rank) const {
    const int sender = sender_on(leg, rank);
    return sender < 0 || sender == count();
  }
  bool was_sent(int leg, int rank) const;
  double ready(int leg, int rank) const;
  double slack(int rank) const;

  void run_leg(int leg, int rank);
  void run_weight(int rank);
  void make_room(int rank);
  void fill(int leg, int rank, bool small_gaps);
  void run_first_forwards();
  void catch_up(int rank, int& leg);
  void run_backwards();
  std::optional<int> next_forward(int rank) const;
  void run_forwards();

  const OrderOptions& options_;
  const ZbVRule& rule_;
  std::vector<double> allowed_;
  Schedule result_;
  std::vector<Rank> ranks_;
};

std::vector<double> ZbVAttempt::idle() const {
  std::vector<double> idle;
  for (const Rank& rank : ranks_) idle.push_back(rank.clock.idle);
  return idle;
}

bool ZbVAttempt::was_sent(int leg, int rank) const {
  return ranks_[sender_on(leg, rank)].ran(leg) > ranks_[rank].ran(leg);
}

double ZbVAttempt::ready(int leg, int rank) const {
  if (is_first_on(leg, rank)) return 0;
  return ranks_[sender_on(leg, rank)].ends[leg][ranks_[rank].ran(leg)] + options_.hop;
}

// The remaining idle time of the rank until it reaches that of another rank.
double ZbVAttempt::slack(int rank) const {
  double most = allowed_.empty() ? 0 : std::ranges::max(allowed_) - allowed_[rank];
  for (const Rank& each : ranks_) most = std::max(most, each.clock.idle);
  return most - ranks_[rank].clock.idle;
}

void ZbVAttempt::run_leg(int leg, int rank) {
  Rank& at = ranks_[rank];
  const bool forward = is_forward_leg(leg);
  const int stage = result_.stages_of_rank[rank][is_near_leg(leg) ? 0 : 1];
  const Action action{forward ? ActionKind::kForward : ActionKind::kInputGradient, stage, at.ran(leg)};
  result_.actions[rank].push_back(action);
  if (!forward) at.weights.push_back({ActionKind::kWeightGradient, stage, at.ran(leg)});
  at.held += forward ? 1 : options_.waiting_share - 1;
  at.ends[leg].push_back(at.clock.run(ready(leg, rank), forward ? options_.forward : options_.input_gradient));
}

void ZbVAttempt::run_weight(int rank) {
  Rank& at = ranks_[rank];
  result_.actions[rank].push_back(at.weights[at.next_weight++]);
  at.held -= options_.waiting_share;
  at.clock.run(0, options_.weight_gradient);
}

void ZbVAttempt::make_room(int rank) {
  while (ranks_[rank].held + 1 > options_.limit && ranks_[rank].has_weight()) run_weight(rank);
}

void ZbVAttempt::fill(int leg, int rank, bool small_gaps) {
  if (is_first_on(leg, rank)) return;
  Rank& at = ranks_[rank];
  const double until = ready(leg, rank);
  while (at.has_weight() && at.clock.now + options_.weight_gradient <= until) run_weight(rank);
  if (small_gaps && at.has_weight() && until - at.clock.now > slack(rank)) run_weight(rank);
}

// The path of the first microbatch in both directions. While a rank waits for it, this rank and the ranks before it run
// forwards, as long as every rank up to it has memory for one more of each chunk.
void ZbVAttempt::run_first_forwards() {
  for (int rank = 0; rank < count(); ++rank) run_leg(kForwardDown, rank);
  for (int rank = count() - 1; rank >= 0; --rank) {
    Rank& at = ranks_[rank];
    auto has_time = [&] { return at.clock.now + options_.forward <= ready(kForwardUp, rank); };
    auto has_room = [&] { return at.held + 2 * (rank + 1) <= options_.limit; };
    while (!is_first_on(kForwardUp, rank) && has_room() && has_time() && at.ran(kForwardDown) < microbatches())
      for (int up_to = 0; up_to <= rank; ++up_to) run_leg(kForwardDown, up_to);
    run_leg(kForwardUp, rank);
  }
}

// Alternates forwards of both chunks on this rank and the ranks after it, until it has run as many as the previous
// rank.
void ZbVAttempt::catch_up(int rank, int& leg) {
  const Rank &at = ranks_[rank], &before = ranks_[rank - 1];
  while (at.forwards() < before.forwards() ||
         (at.ran(kForwardUp) <= before.ran(kForwardUp) && before.ran(kForwardUp) < microbatches())) {
    for (int from = count() - 1; from >= rank; --from)
      if (ranks_[from].ran(leg) < microbatches()) run_leg(leg, from);
    leg = leg == kForwardDown ? kForwardUp : kForwardDown;
  }
}

// Chosen by the messages that were sent before any of them runs.
void ZbVAttempt::run_backwards() {
  std::vector<int> near, far;
  for (int rank = 0; rank < count(); ++rank) {
    const Rank& at = ranks_[rank];
    const bool far_ran_first = at.ran(kBackwardDown) > at.ran(kBackwardUp);
    const bool takes_near = far_ran_first && (is_first_on(kBackwardUp, rank) || was_sent(kBackwardUp, rank) ||
                                              at.ran(kBackwardDown) == microbatches());
    (takes_near ? near : far).push_back(rank);
  }
  std::ranges::reverse(near);
  for (const int rank : near) {
    fill(kBackwardUp, rank, true);
    run_leg(kBackwardUp, rank);
  }
  for (const int rank : far) {
    fill(kBackwardDown, rank, rule_.before_backwards);
    run_leg(kBackwardDown, rank);
  }
}

std::optional<int> ZbVAttempt::next_forward(int rank) const {
  const Rank& at = ranks_[rank];
  if (at.ran(kForwardUp) == microbatches()) return std::nullopt;
  if (at.ran(kForwardUp) >= at.ran(kForwardDown)) return kForwardDown;
  if (is_first_on(kForwardUp, rank) || was_sent(kForwardUp, rank)) return kForwardUp;
  if (at.ran(kForwardDown) == microbatches()) return std::nullopt;
  if (is_first_on(kForwardDown, rank) || was_sent(kForwardDown, rank)) return kForwardDown;
  return std::nullopt;
}

void ZbVAttempt::run_forwards() {
  for (int rank = 0; rank < count(); ++rank) {
    const auto leg = next_forward(rank);
    if (!leg) continue;
    make_room(rank);
    fill(*leg, rank, rule_.before_forwards);
    run_leg(*leg, rank);
  }
}

void ZbVAttempt::run() {
  run_first_forwards();
  int leg = kForwardDown;
  for (int rank = 1; rank < count(); ++rank) catch_up(rank, leg);
  for (int round = 0; round < 2 * microbatches(); ++round) {
    run_backwards();
    run_forwards();
  }
  for (int rank = 0; rank < count(); ++rank)
    while (ranks_[rank].has_weight()) run_weight(rank);
}

struct ZbVFound {
  Schedule schedule;
  double idle = 0;  // idle time of the rank that is idle the longest
};

// Repeats with the result of the previous attempt, as long as that helps.
ZbVFound try_rule(const Schedule& placed, const OrderOptions& options, const ZbVRule& rule) {
  std::optional<ZbVFound> best;
  for (std::vector<double> allowed;;) {
    ZbVAttempt attempt(placed, options, rule, allowed);
    attempt.run();
    allowed = attempt.idle();
    const double idle = std::ranges::max(allowed);
    if (best && idle >= best->idle) return std::move(*best);
    best = ZbVFound{std::move(attempt.result()), idle};
  }
}

}  // namespace

Schedule zb_v_heuristic(const Schedule& placed, const OrderOptions& options) {
  std::optional<ZbVFound> best;
  for (const bool before_backwards : {true, false})
    for (const bool before_forwards : {true, false}) {
      const ZbVRule rule{before_forwards, before_backwards};
      ZbVFound found = try_rule(placed, options, rule);
      if (!best || found.idle < best->idle) best = std::move(found);
    }
  return std::move(best->schedule);
}

}  // namespace gantry::schedule
