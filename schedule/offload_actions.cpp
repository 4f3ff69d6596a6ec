#include "gantry/schedule/offload_actions.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "gantry/core/error.h"
#include "gantry/schedule/action_table.h"
#include "gantry/schedule/extra_actions.h"

namespace gantry::schedule {
namespace {

// Between a forward and its backward, OFFLOAD runs during the next computation and RELOAD during the one before the
// backward. Offloading is useful only if there is at least one more computation between them.
constexpr int kLeastSteps = 4;

using Key = std::pair<int, int>;  // stage and microbatch; for the state of a stage the microbatch is kNoMicrobatch

bool moves_out(ActionKind kind) { return kind == ActionKind::kOffload || kind == ActionKind::kOffloadState; }
bool moves_in(ActionKind kind) { return kind == ActionKind::kReload || kind == ActionKind::kReloadState; }
bool is_of_state(ActionKind kind) { return kind == ActionKind::kOffloadState || kind == ActionKind::kReloadState; }

Action opposite(const Action& out) {
  return {is_of_state(out.kind) ? ActionKind::kReloadState : ActionKind::kReload, out.stage, out.microbatch};
}

bool computes_backward(const std::vector<Action>& row) {
  return std::ranges::any_of(row, [](const Action& action) { return is_backward(action.kind); });
}

// --- OffloadPlacing ---

// Places the actions of one row. A step is a unit of execution: a computation, or an overlapped pair.
class OffloadPlacing {
 public:
  OffloadPlacing(const std::vector<Action>& row, std::vector<int> stages, Offload offload)
      : row_(row), stages_(std::move(stages)), offload_(offload) {}

  std::vector<Action> run() {
    if (!computes_backward(row_)) return row_;
    find_steps();
    if (offload_.activations) move_activations();
    if (offload_.state) move_state();
    std::vector<Action> placed = std::move(first_);
    int step = 0;
    for (int start = 0; start < length();) {
      const bool is_step = row_[start].is_compute();
      const int end = start + width_at(row_, start);
      if (is_step) append(placed, before_[step]);
      placed.insert(placed.end(), row_.begin() + start, row_.begin() + end);
      if (is_step) append(placed, after_[step++]);
      start = end;
    }
    return placed;
  }

 private:
  using ByStep = std::map<int, std::vector<Action>>;

  int length() const { return static_cast<int>(row_.size()); }
  static void append(std::vector<Action>& to, const std::vector<Action>& actions) {
    to.insert(to.end(), actions.begin(), actions.end());
  }

  void find_steps() {
    int step = 0;
    for (int start = 0; start < length(); start += width_at(row_, start)) {
      if (!row_[start].is_compute()) continue;
      for (int i = start; i < start + width_at(row_, start); ++i) {
        const Action& action = row_[i];
        if (action.kind == ActionKind::kForward) forwards_.emplace_back(Key{action.stage, action.microbatch}, step);
        if (is_backward(action.kind)) backward_[{action.stage, action.microbatch}] = step;
        last_[action.stage] = step;
      }
      ++step;
    }
  }

  void move_activations() {
    for (const auto& [key, forward] : forwards_) {
      const auto [stage, microbatch] = key;
      const auto backward = backward_.find(key);
      if (backward == backward_.end() || backward->second - forward < kLeastSteps) continue;
      after_[forward].push_back({ActionKind::kOffload, stage, microbatch});
      before_[backward->second - 1].push_back({ActionKind::kReload, stage, microbatch});
    }
  }

  void move_state() {
    for (const int stage : stages_) {
      first_.push_back({ActionKind::kOffloadState, stage, kNoMicrobatch});
      before_[last_.at(stage)].push_back({ActionKind::kReloadState, stage, kNoMicrobatch});
    }
  }

  const std::vector<Action>& row_;
  std::vector<int> stages_;
  Offload offload_;
  std::vector<std::pair<Key, int>> forwards_;  // computations and their steps, in the order of the row
  std::map<Key, int> backward_;                // its step
  std::map<int, int> last_;                    // by stage: the step of its last computation
  std::vector<Action> first_;
  ByStep before_, after_;
};

// --- Validation ---

class OffloadProof {
 public:
  OffloadProof(const Schedule& schedule, int rank) : schedule_(schedule), rank_(rank) {}

  void run() {
    for (int i = 0; i < length(); ++i) see(i);
    for (const auto& [key, position] : out_)
      refuse(position, "the offloaded data is never reloaded", to_string(opposite(row()[position])) + " after it");
  }

 private:
  const std::vector<Action>& row() const { return schedule_.actions[rank_]; }
  int length() const { return static_cast<int>(row().size()); }
  [[noreturn]] void refuse(int position, const std::string& what, const std::string& expected) const {
    refuse_extra(schedule_, rank_, position, what, expected);
  }

  void see(int position) {
    const Action& action = row()[position];
    const Key key{action.stage, action.microbatch};
    if (action.kind == ActionKind::kForward) kept_.insert(key);
    if (is_backward(action.kind)) see_backward(position, key);
    if (moves_out(action.kind)) see_out(position, key);
    if (moves_in(action.kind) && out_.erase(key) == 0)
      refuse(position, "no such data is in host memory", "one OFFLOAD before it");
  }

  void see_backward(int position, const Key& key) {
    if (const auto out = out_.find(key); out != out_.end())
      refuse(position,
             "the activations of the forward have been in host memory since position " + std::to_string(out->second),
             to_string(opposite(row()[out->second])) + " before it");
    kept_.erase(key);
  }

  void see_out(int position, const Key& key) {
    if (!is_of_state(row()[position].kind) && !kept_.contains(key))
      refuse(position, "no activations of its microbatch are on the device here",
             "a position between the forward and the backward");
    if (!moved_.insert(key).second) refuse(position, "the same data was offloaded before", "one OFFLOAD");
    out_[key] = position;
  }

  const Schedule& schedule_;
  int rank_;
  std::set<Key> kept_, moved_;
  std::map<Key, int> out_;  // position of the OFFLOAD
};

}  // namespace

bool is_offload_action(ActionKind kind) { return moves_out(kind) || moves_in(kind); }

Offload offload_of(const std::string& name) {
  if (name == "none") return {};
  if (name == "optimizer") return {.state = true};
  if (name == "activations") return {.activations = true};
  if (name == "both") return {.state = true, .activations = true};
  throw ConfigError({"train.offload", "'" + name + "'", "none, optimizer, activations or both", ""});
}

Schedule with_offload_actions(const Schedule& schedule, Offload offload) {
  if (is_lowered(schedule))
    throw InternalError({"schedule " + schedule.name,
                         "the schedule has messages, but offloads must be placed before messages", "", ""});
  Schedule placed = schedule;
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    std::erase_if(placed.actions[rank], [](const Action& action) { return is_offload_action(action.kind); });
    const std::vector<Action> plain = std::move(placed.actions[rank]);
    placed.actions[rank] = OffloadPlacing(plain, schedule.stages_of_rank[rank], offload).run();
  }
  return placed;
}

void prove_offload_actions(const Schedule& schedule) {
  for (int rank = 0; rank < schedule.ranks(); ++rank)
    if (std::ranges::any_of(schedule.actions[rank], is_offload_action, &Action::kind))
      OffloadProof(schedule, rank).run();
}

}  // namespace gantry::schedule
