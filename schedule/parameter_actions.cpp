#include "gantry/schedule/parameter_actions.h"

#include <algorithm>
#include <limits>
#include <map>

#include "gantry/core/error.h"
#include "gantry/schedule/action_table.h"
#include "gantry/schedule/extra_actions.h"

namespace gantry::schedule {
namespace {

constexpr int kStagesInWindow = 2;  // the stage in use and the next one

bool is_parameter_action(ActionKind kind) {
  return kind == ActionKind::kUnshard || kind == ActionKind::kReshard || kind == ActionKind::kReduceGradient;
}

bool makes_gradients(ActionKind kind) { return kind == ActionKind::kBackward || kind == ActionKind::kWeightGradient; }

Action of_stage(ActionKind kind, int stage) { return {kind, stage, kNoMicrobatch}; }

bool contains(const std::vector<int>& stages, int stage) { return std::ranges::find(stages, stage) != stages.end(); }

// --- Placement ---

// Places the actions of one row; the parts of an overlapped pair together.
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

  // The first `most` stages whose parameters are needed in [start, end), in order of use.
  std::vector<int> next_stages(int start, int end, int most) const {
    std::vector<int> stages;
    for (int i = start; i < end && static_cast<int>(stages.size()) < most; ++i)
      if (needs_parameters(row_[i].kind) && !contains(stages, row_[i].stage)) stages.push_back(row_[i].stage);
    return stages;
  }

  // The stages that are gathered while the action at `start` runs, which uses `used`.
  std::vector<int> kept_at(int start, const std::vector<int>& used) const {
    if (gather_ == Gather::kMicrobatch) return used;
    const int most = gather_ == Gather::kStep ? std::numeric_limits<int>::max()
                                              : std::max(kStagesInWindow, static_cast<int>(used.size()));
    return next_stages(start, length(), most);
  }

  void gather(int stage) {
    if (contains(gathered_, stage)) return;
    gathered_.push_back(stage);
    placed_.push_back(of_stage(ActionKind::kUnshard, stage));
  }

  void release_all_but(const std::vector<int>& kept) {
    std::erase_if(gathered_, [&](int stage) {
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
  std::map<int, int> last_gradient_;  // position of the gather, by stage
  std::vector<int> gathered_;         // in the order of the gathers
  std::vector<Action> placed_;
};

// --- Validation ---

struct StageState {
  int gathered = -1;  // position of the gather; -1: sharded
  int reduced = -1;   // position of the reduction; -1: not yet
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
        refuse(state.gathered, "stage " + std::to_string(stage) + " is never released after it", "a RESHARD after it");
      if (state.last_gradient >= 0 && state.reduced < 0)
        throw ConfigError({"schedule " + schedule_.name + ", rank " + std::to_string(rank_),
                           to_string(of_stage(ActionKind::kReduceGradient, stage)) + " is missing",
                           "one such action, after " + to_string(row()[state.last_gradient]), ""});
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
      refuse(position, "the parameters of stage " + std::to_string(action.stage) + " are not gathered",
             to_string(of_stage(ActionKind::kUnshard, action.stage)) + " before it, without a RESHARD in between");
    if (action.kind == ActionKind::kUnshard) {
      if (stage.gathered >= 0)
        refuse(position, "the stage has been gathered since position " + std::to_string(stage.gathered), "one UNSHARD");
      stage.gathered = position;
    }
    if (action.kind == ActionKind::kReshard) {
      if (stage.gathered < 0) refuse(position, "the stage is not gathered", "an UNSHARD before it");
      stage.gathered = -1;
    }
    if (action.kind == ActionKind::kReduceGradient) see_reduction(position, stage);
  }

  void see_reduction(int position, StageState& stage) const {
    if (stage.reduced >= 0)
      refuse(position, "the gradients have been reduced at position " + std::to_string(stage.reduced) + " already",
             "one reduction");
    if (stage.last_gradient < 0) refuse(position, "the stage has no gradients", "a stage with a backward");
    if (stage.last_gradient > position)
      refuse(position,
             "the action precedes " + to_string(row()[stage.last_gradient]) + " (position " +
                 std::to_string(stage.last_gradient) + "), which adds to the gradients",
             "a position after that action");
    stage.reduced = position;
  }

  const Schedule& schedule_;
  int rank_;
  std::map<int, StageState> stages_;
};

}  // namespace

Gather gather_of(const std::string& name, int pipeline) {
  if (name == "step") return Gather::kStep;
  if (name == "window") return Gather::kWindow;
  if (name == "microbatch") return Gather::kMicrobatch;
  if (name == "auto") return auto_gather(pipeline);
  throw ConfigError({"parallel.gather", "'" + name + "'", "step, window, microbatch or auto", ""});
}

Gather auto_gather(int pipeline) { return pipeline == 1 ? Gather::kMicrobatch : Gather::kWindow; }

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
    throw InternalError({"schedule " + schedule.name,
                         "the schedule has messages, but parameter actions must be placed before messages", "", ""});
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

}  // namespace gantry::schedule
