#include "gantry/schedule/parameter_actions.h"

#include <algorithm>
#include <limits>
#include <map>

#include "gantry/core/error.h"
#include "gantry/schedule/action_table.h"
#include "gantry/schedule/extra_actions.h"

namespace gantry::schedule {
namespace {

constexpr int kStagesInWindow = 2;  // the one in use and the next

bool is_parameter_action(ActionKind kind) {
  return kind == ActionKind::kUnshard || kind == ActionKind::kReshard || kind == ActionKind::kReduceGradient;
}

bool makes_gradients(ActionKind kind) { return kind == ActionKind::kBackward || kind == ActionKind::kWeightGradient; }

Action of_stage(ActionKind kind, int stage) { return {kind, stage, kNoMicrobatch}; }

bool contains(const std::vector<int>& stages, int stage) { return std::ranges::find(stages, stage) != stages.end(); }

// --- Placing ---

// One row, action by action; the parts of an overlapped pair together.
class Placing {
 public:
  Placing(const std::vector<Action>& row, Gather gather) : row_(row), gather_(gather) {
    for (int i = 0; i < length(); ++i)
      if (makes_gradients(row_[i].kind)) last_gradient_[row_[i].stage] = i;
  }

  std::vector<Action> run() {
    if (gather_ == Gather::kAround) return around();
    for (int start = 0; start < length(); start += width_at(row_, start)) {
      const int end = start + width_at(row_, start);
      const std::vector<int> used = next_stages(start, end, std::numeric_limits<int>::max());
      const std::vector<int> kept = kept_at(start, used);
      release_all_but(kept);
      for (const int stage : gather_ == Gather::kWindow ? kept : used) gather(stage);
      placed_.insert(placed_.end(), row_.begin() + start, row_.begin() + end);
      if (gather_ == Gather::kMicrobatch) release_all_but({});
      for (int i = start; i < end; ++i)
        if (const auto last = last_gradient_.find(row_[i].stage); last != last_gradient_.end() && last->second == i)
          placed_.push_back(of_stage(ActionKind::kReduceGradient, row_[i].stage));
    }
    release_all_but({});
    return std::move(placed_);
  }

 private:
  int length() const { return static_cast<int>(row_.size()); }

  // The first `most` stages whose parameters are needed from `start` on and before `end`, in that order.
  std::vector<int> next_stages(int start, int end, int most) const {
    std::vector<int> stages;
    for (int i = start; i < end && static_cast<int>(stages.size()) < most; ++i)
      if (needs_parameters(row_[i].kind) && !contains(stages, row_[i].stage)) stages.push_back(row_[i].stage);
    return stages;
  }

  // What is whole while the action at `start` runs, which uses `used`.
  std::vector<int> kept_at(int start, const std::vector<int>& used) const {
    if (gather_ == Gather::kMicrobatch) return used;
    const int most = gather_ == Gather::kStep ? std::numeric_limits<int>::max()
                                              : std::max(kStagesInWindow, static_cast<int>(used.size()));
    return next_stages(start, length(), most);
  }

  void gather(int stage) {
    if (contains(whole_, stage)) return;
    whole_.push_back(stage);
    placed_.push_back(of_stage(ActionKind::kUnshard, stage));
  }

  void release_all_but(const std::vector<int>& kept) {
    std::erase_if(whole_, [&](int stage) {
      if (contains(kept, stage)) return false;
      placed_.push_back(of_stage(ActionKind::kReshard, stage));
      return true;
    });
  }

  std::vector<Action> around() {
    std::vector<int> stages = next_stages(0, length(), std::numeric_limits<int>::max());
    std::ranges::sort(stages);
    for (const int stage : stages) gather(stage);
    placed_.insert(placed_.end(), row_.begin(), row_.end());
    release_all_but({});
    for (const auto& [stage, last] : last_gradient_) placed_.push_back(of_stage(ActionKind::kReduceGradient, stage));
    return std::move(placed_);
  }

  const std::vector<Action>& row_;
  Gather gather_;
  std::map<int, int> last_gradient_;  // its position, by stage
  std::vector<int> whole_;            // in the order in which they were gathered
  std::vector<Action> placed_;
};

// --- Proving ---

struct StageState {
  int gathered = -1;  // where; -1: cut
  int reduced = -1;   // where; -1: not yet
  int last_gradient = -1;
};

class RowProof {
 public:
  RowProof(const Schedule& schedule, int rank) : schedule_(schedule), rank_(rank) {
    for (int i = 0; i < length(); ++i)
      if (makes_gradients(row()[i].kind)) stages_[row()[i].stage].last_gradient = i;
  }

  void run() {
    for (int i = 0; i < length(); ++i) see(i);
    for (const auto& [stage, state] : stages_) {
      if (state.gathered >= 0)
        refuse(state.gathered, "stage " + std::to_string(stage) + " is never released after it", "a RESHARD behind it");
      if (state.last_gradient >= 0 && state.reduced < 0)
        throw ConfigError({"schedule " + schedule_.name + ", rank " + std::to_string(rank_),
                           to_string(of_stage(ActionKind::kReduceGradient, stage)) + " is missing",
                           "it once, after " + to_string(row()[state.last_gradient]), ""});
    }
  }

 private:
  const std::vector<Action>& row() const { return schedule_.actions[rank_]; }
  int length() const { return static_cast<int>(row().size()); }

  [[noreturn]] void refuse(int position, const std::string& what, const std::string& expected) const {
    refuse_extra(schedule_, rank_, position, what, expected);
  }

  void see(int position) {
    const Action& action = row()[position];
    StageState& stage = stages_[action.stage];
    if (needs_parameters(action.kind) && stage.gathered < 0)
      refuse(position, "the parameters of stage " + std::to_string(action.stage) + " are not whole",
             to_string(of_stage(ActionKind::kUnshard, action.stage)) + " before it, and no RESHARD in between");
    if (action.kind == ActionKind::kUnshard) {
      if (stage.gathered >= 0)
        refuse(position, "the stage is whole since position " + std::to_string(stage.gathered), "it once");
      stage.gathered = position;
    }
    if (action.kind == ActionKind::kReshard) {
      if (stage.gathered < 0) refuse(position, "the stage is not whole", "an UNSHARD before it");
      stage.gathered = -1;
    }
    if (action.kind == ActionKind::kReduceGradient) see_reduction(position, stage);
  }

  void see_reduction(int position, StageState& stage) const {
    if (stage.reduced >= 0)
      refuse(position, "the gradients are summed at position " + std::to_string(stage.reduced) + " already", "it once");
    if (stage.last_gradient < 0) refuse(position, "the stage has no gradients", "it where there is a backward");
    if (stage.last_gradient > position)
      refuse(position,
             "it stands before " + to_string(row()[stage.last_gradient]) + " (position " +
                 std::to_string(stage.last_gradient) + "), which adds to the gradients",
             "it after that");
    stage.reduced = position;
  }

  const Schedule& schedule_;
  int rank_;
  std::map<int, StageState> stages_;
};

// --- Replicas ---

class Replicas {
 public:
  explicit Replicas(const std::vector<Schedule>& replicas) {
    for (const auto& replica : replicas) {
      lowered_.push_back(lower(replica));
      ranks_of_stages_.push_back(ranks_by_stage(lowered_.back()));
      next_.emplace_back(lowered_.back().ranks(), 0);
    }
  }

  void run() {
    if (lowered_.empty()) return;
    for (const auto& replica : lowered_)
      if (replica.stages_of_rank != lowered_.front().stages_of_rank)
        throw ConfigError({"schedule " + replica.name, "places stages otherwise than the first replica",
                           "one placement", "give all replicas one schedule"});
    for (bool moved = true; moved;) {
      moved = false;
      for (int rank = 0; rank < lowered_.front().ranks(); ++rank)
        for (int replica = 0; replica < count(); ++replica)
          while (step(replica, rank)) moved = true;
    }
    for (int rank = 0; rank < lowered_.front().ranks(); ++rank)
      for (int replica = 0; replica < count(); ++replica)
        if (!finished(replica, rank)) refuse(replica, rank);
  }

 private:
  int count() const { return static_cast<int>(lowered_.size()); }
  const std::vector<Action>& row(int replica, int rank) const { return lowered_[replica].actions[rank]; }
  bool finished(int replica, int rank) const {
    return next_[replica][rank] == static_cast<int>(row(replica, rank).size());
  }
  const Action& current(int replica, int rank) const { return row(replica, rank)[next_[replica][rank]]; }
  static bool is_collective(const Action& action) {
    return action.kind == ActionKind::kUnshard || action.kind == ActionKind::kReduceGradient;
  }

  bool step(int replica, int rank) {
    if (finished(replica, rank)) return false;
    const Action& action = current(replica, rank);
    if (action.is_message()) return pass_message(replica, rank, action);
    if (is_collective(action)) return meet(rank, action);
    ++next_[replica][rank];  // its data is there: messages of a lowered row stand before
    return true;
  }

  bool pass_message(int replica, int rank, const Action& action) {
    const Action other = matching_message(action);
    const int peer = ranks_of_stages_[replica][other.stage];
    if (finished(replica, peer) || current(replica, peer) != other) return false;
    ++next_[replica][rank];
    ++next_[replica][peer];
    return true;
  }

  bool meet(int rank, const Action& action) {
    for (int replica = 0; replica < count(); ++replica)
      if (finished(replica, rank) || current(replica, rank) != action) return false;
    for (int replica = 0; replica < count(); ++replica) ++next_[replica][rank];
    return true;
  }

  std::string place(int replica, int rank) const {
    return "replica " + std::to_string(replica) +
           (finished(replica, rank)
                ? " has ended"
                : " is at position " + std::to_string(next_[replica][rank]) + ", " + to_string(current(replica, rank)));
  }

  // The first that waits in a collective says most; else a message waits for a rank that does.
  [[noreturn]] void refuse(int replica, int rank) const {
    for (int each = 0; each < lowered_.front().ranks(); ++each)
      for (int waiting = 0; waiting < count(); ++waiting) {
        if (finished(waiting, each) || !is_collective(current(waiting, each))) continue;
        for (int other = 0; other < count(); ++other)
          if (finished(other, each) || current(other, each) != current(waiting, each))
            throw ConfigError({"schedule " + lowered_[waiting].name + ", rank " + std::to_string(each),
                               "deadlock: " + place(waiting, each) + ", while " + place(other, each),
                               "the same gathers and sums in the same order on all replicas",
                               "give all replicas equally many microbatches"});
      }
    throw ConfigError({"schedule " + lowered_[replica].name + ", rank " + std::to_string(rank),
                       "deadlock: " + place(replica, rank), "", ""});
  }

  std::vector<Schedule> lowered_;
  std::vector<std::vector<int>> ranks_of_stages_;
  std::vector<std::vector<int>> next_;  // by replica and rank, the position it has reached
};

}  // namespace

Gather gather_of(const std::string& name, int pipeline) {
  if (name == "step") return Gather::kStep;
  if (name == "window") return Gather::kWindow;
  if (name == "microbatch") return Gather::kMicrobatch;
  if (name == "auto") return pipeline == 1 ? Gather::kMicrobatch : Gather::kWindow;
  throw ConfigError({"parallel.gather", "'" + name + "'", "step, window, microbatch or auto", ""});
}

std::vector<Action> actions_around(std::vector<int> stages, bool trains) {
  std::ranges::sort(stages);
  std::vector<Action> actions;
  for (const auto kind : {ActionKind::kUnshard, ActionKind::kReshard, ActionKind::kReduceGradient})
    for (const int stage : stages)
      if (trains || kind != ActionKind::kReduceGradient) actions.push_back(of_stage(kind, stage));
  return actions;
}

bool needs_parameters(ActionKind kind) { return kind == ActionKind::kForward || is_backward(kind); }

Schedule with_parameter_actions(const Schedule& schedule, Gather gather) {
  if (is_lowered(schedule))
    throw InternalError({"schedule " + schedule.name, "has messages, and parameter actions come before them", "", ""});
  Schedule placed = schedule;
  for (auto& row : placed.actions)
    std::erase_if(row, [](const Action& action) { return is_parameter_action(action.kind); });
  for (auto& row : placed.actions) {
    const std::vector<Action> plain = std::move(row);
    row = Placing(plain, gather).run();
  }
  return placed;
}

void prove_parameter_actions(const Schedule& schedule) {
  const bool any = std::ranges::any_of(schedule.actions, [](const auto& row) {
    return std::ranges::any_of(row, [](const Action& action) { return is_parameter_action(action.kind); });
  });
  if (!any) return;
  for (int rank = 0; rank < schedule.ranks(); ++rank) RowProof(schedule, rank).run();
}

void validate_replicas(const std::vector<Schedule>& replicas) { Replicas(replicas).run(); }

}  // namespace gantry::schedule
