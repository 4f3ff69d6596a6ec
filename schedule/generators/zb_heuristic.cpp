#include "gantry/schedule/generators/zb_heuristic.h"

#include <algorithm>

#include "gantry/schedule/generators/rank_clock.h"

namespace gantry::schedule {
namespace {

struct ZbRule {
  bool short_lead;        // the forwards ahead of the first backward end before it can start
  bool forwards_wait;     // also if one would delay a backward of the next rank
  bool fills_small_gaps;  // also on ranks whose idle time stays below that of the longest
};

class ZbAttempt {
 public:
  ZbAttempt(const Schedule& placed, const OrderOptions& options, const ZbRule& rule)
      : options_(options), rule_(rule), result_(placed), ranks_(placed.ranks()) {}

  // Returns nothing if the memory limit is too small.
  std::optional<Schedule> run() {
    run_lead();
    for (int round = 1; round < result_.microbatches; ++round)
      if (!run_forwards() || !run_backwards()) return std::nullopt;
    for (int rank = 0; rank < count(); ++rank)
      while (ranks_[rank].weights < result_.microbatches) run_weight(rank);
    return std::move(result_);
  }

 private:
  struct Rank {
    RankClock clock;
    double held = 0;
    std::vector<double> forward_ends, backward_ends;
    int weights = 0;

    int forwards() const { return static_cast<int>(forward_ends.size()); }
    int backwards() const { return static_cast<int>(backward_ends.size()); }
    bool has_weight() const { return weights < backwards(); }
  };

  int count() const { return static_cast<int>(ranks_.size()); }
  bool has_forward(int rank) const { return ranks_[rank].forwards() < result_.microbatches; }
  double forward_ready(int rank) const {
    return rank == 0 ? 0 : ranks_[rank - 1].forward_ends[ranks_[rank].forwards()] + options_.hop;
  }
  double backward_ready(int rank) const {
    return rank + 1 == count() ? 0 : ranks_[rank + 1].backward_ends[ranks_[rank].backwards()] + options_.hop;
  }
  // The remaining idle time of the rank until it reaches the maximum of all ranks.
  double slack(int rank) const {
    double most = 0;
    for (const Rank& each : ranks_) most = std::max(most, each.clock.idle);
    return most - ranks_[rank].clock.idle;
  }

  void run_forward(int rank);
  void run_backward(int rank);
  void run_weight(int rank);
  bool make_room(int rank, double needed);
  void fill(int rank, double ready);
  void run_lead();
  int lead_of(int rank, double& gradient) const;
  bool forward_waits(int rank) const;
  bool run_forwards();
  bool run_backwards();

  const OrderOptions& options_;
  const ZbRule& rule_;
  Schedule result_;
  std::vector<Rank> ranks_;
};

void ZbAttempt::run_forward(int rank) {
  Rank& at = ranks_[rank];
  result_.actions[rank].push_back({ActionKind::kForward, rank, at.forwards()});
  at.forward_ends.push_back(at.clock.run(forward_ready(rank), options_.forward));
  ++at.held;
}

void ZbAttempt::run_backward(int rank) {
  Rank& at = ranks_[rank];
  result_.actions[rank].push_back({ActionKind::kInputGradient, rank, at.backwards()});
  at.backward_ends.push_back(at.clock.run(backward_ready(rank), options_.input_gradient));
  at.held -= 1 - options_.waiting_share;
}

void ZbAttempt::run_weight(int rank) {
  Rank& at = ranks_[rank];
  result_.actions[rank].push_back({ActionKind::kWeightGradient, rank, at.weights++});
  at.clock.run(0, options_.weight_gradient);
  at.held -= options_.waiting_share;
}

bool ZbAttempt::make_room(int rank, double needed) {
  while (ranks_[rank].held + needed > options_.limit) {
    if (!ranks_[rank].has_weight()) return false;
    run_weight(rank);
  }
  return true;
}

// Runs weight gradients until the data are available. The last one may take longer than that.
void ZbAttempt::fill(int rank, double ready) {
  Rank& at = ranks_[rank];
  while (at.has_weight() && at.clock.now + options_.weight_gradient <= ready) run_weight(rank);
  const double gap = ready - at.clock.now;
  if (at.has_weight() && gap > 0 && (rule_.fills_small_gaps || gap > slack(rank))) run_weight(rank);
}

// Forwards ahead of a rank's first backward: as many as memory and time allow. `gradient` is the end of the first
// backward of the next rank on entry, and of this rank on return.
int ZbAttempt::lead_of(int rank, double& gradient) const {
  const Rank& at = ranks_[rank];
  int lead = 0;
  double end = at.clock.now;
  while (at.forwards() + lead < result_.microbatches && at.held + lead + 1 <= options_.limit) {
    const double ready = gradient + options_.hop;
    if (rule_.short_lead ? end + options_.forward > ready : end >= ready) break;
    end += options_.forward;
    ++lead;
  }
  gradient = std::max(end, gradient + options_.hop) + options_.input_gradient;
  return lead;
}

void ZbAttempt::run_lead() {
  for (int rank = 0; rank < count(); ++rank) run_forward(rank);
  std::vector<int> lead(count(), 0);
  double gradient = ranks_.back().clock.now + options_.input_gradient;
  for (int rank = count() - 2; rank >= 0; --rank) lead[rank] = lead_of(rank, gradient);
  // A rank has fewer forwards ahead than the previous one, because it would wait for their data otherwise.
  for (int rank = 1; rank < count(); ++rank)
    while (lead[rank] > 0 && lead[rank] >= lead[rank - 1] && 1 + lead[rank] < result_.microbatches) --lead[rank];
  for (int rank = 0; rank < count(); ++rank)
    for (int i = 0; i < lead[rank]; ++i) run_forward(rank);
  for (int rank = count() - 1; rank >= 0; --rank) run_backward(rank);
}

bool ZbAttempt::forward_waits(int rank) const {
  if (!rule_.forwards_wait || rank + 1 == count()) return false;
  const Rank &at = ranks_[rank], &next = ranks_[rank + 1];
  if (at.forwards() < next.forwards() + 2) return false;
  const double gradient = next.clock.now + options_.forward + options_.input_gradient + options_.hop;
  if (at.clock.now >= gradient) return true;
  double held = at.held + 1, end = at.clock.now + options_.forward;
  for (int weight = at.weights; held > options_.limit && weight < at.backwards(); ++weight)
    held -= options_.waiting_share, end += options_.weight_gradient;
  return end > gradient && gradient - at.clock.now <= slack(rank);
}

bool ZbAttempt::run_forwards() {
  std::vector<bool> runs(count());
  for (int rank = 0; rank < count(); ++rank) runs[rank] = has_forward(rank) && !forward_waits(rank);
  // If the next rank runs no forward, this one does not need one either.
  for (int rank = count() - 2; rank >= 0; --rank) runs[rank] = runs[rank] && runs[rank + 1];
  for (int rank = 0; rank < count(); ++rank) {
    if (!runs[rank]) continue;
    if (!make_room(rank, 1)) return false;
    if (rank > 0) fill(rank, forward_ready(rank));
    run_forward(rank);
  }
  return true;
}

bool ZbAttempt::run_backwards() {
  for (int rank = count() - 1; rank >= 0; --rank) {
    if (!make_room(rank, options_.waiting_share - 1)) return false;
    if (rank + 1 < count()) fill(rank, backward_ready(rank));
    // The first rank ends with its backwards, because all others wait for the last of them.
    if (rank == 0 && !has_forward(0))
      while (ranks_[0].has_weight()) run_weight(0);
    run_backward(rank);
  }
  return true;
}

}  // namespace

std::optional<Schedule> zb_heuristic(const Schedule& placed, const OrderOptions& options) {
  std::optional<Schedule> best;
  double shortest = 0;
  for (const bool short_lead : {true, false})
    for (const bool forwards_wait : {true, false})
      for (const bool fills_small_gaps : {true, false}) {
        const ZbRule rule{short_lead, forwards_wait, fills_small_gaps};
        auto made = ZbAttempt(placed, options, rule).run();
        if (!made) continue;
        const double longest = length_of(*made, options)[0];
        if (!best || longest < shortest) shortest = longest, best = std::move(made);
      }
  return best;
}

}  // namespace gantry::schedule
