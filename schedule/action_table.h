// The position of each action of a schedule, as dense tables over (stage, microbatch), and the dependencies between
// actions. Shared by validate, lower and simulate.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "gantry/schedule/schedule.h"

namespace gantry::schedule {

// A value for every (stage, microbatch).
template <class Value>
class StageGrid {
 public:
  StageGrid() = default;
  StageGrid(int stages, int microbatches, Value initial)
      : microbatches_(microbatches), values_(static_cast<std::size_t>(stages) * microbatches, initial) {}
  Value& at(int stage, int microbatch) { return values_[static_cast<std::size_t>(stage) * microbatches_ + microbatch]; }
  const Value& at(int stage, int microbatch) const {
    return values_[static_cast<std::size_t>(stage) * microbatches_ + microbatch];
  }

 private:
  int microbatches_ = 0;
  std::vector<Value> values_;
};

// The position of an action in the row of the rank that holds its stage, by kind, stage and microbatch; -1 if the
// action does not exist.
class ActionTable {
 public:
  ActionTable(int stages, int microbatches, bool with_vocabulary = false) {
    const StageGrid<int> none(stages, microbatches, -1);
    for (std::size_t kind = 0; kind < positions_.size(); ++kind) {
      const bool is_vocabulary = is_of_vocabulary(static_cast<ActionKind>(kind));
      if (is_vocabulary ? with_vocabulary : kind <= static_cast<std::size_t>(ActionKind::kRecvBackward))
        positions_[kind] = none;
    }
  }
  int& position(ActionKind kind, int stage, int microbatch) {
    return positions_[static_cast<std::size_t>(kind)].at(stage, microbatch);
  }
  int position(const Action& action) const {
    return positions_[static_cast<std::size_t>(action.kind)].at(action.stage, action.microbatch);
  }
  bool has(const Action& action) const { return position(action) >= 0; }

 private:
  std::array<StageGrid<int>, kActionKinds> positions_;
};

// The rank of each stage; -1 for a stage that no rank holds.
std::vector<int> ranks_by_stage(const Schedule& schedule);

// The number of actions of the row that run as a unit from `position` on: 2 for an overlapped pair, else 1.
int width_at(const std::vector<Action>& row, int position);

inline bool is_backward(ActionKind kind) { return kind == ActionKind::kBackward || kind == ActionKind::kInputGradient; }
inline bool is_send(ActionKind kind) { return kind == ActionKind::kSendForward || kind == ActionKind::kSendBackward; }

// The other side of a message: the receive of a send, the send of a receive.
Action matching_message(const Action& message);

// The messages before and after a compute action if the neighbour is on another rank: the receive of its input, and the
// send of its result. None at the ends of the pipeline, for weight gradients, and for neighbours on the same rank.
std::optional<Action> send_after(const Action& action, const std::vector<int>& rank_of_stage);
std::optional<Action> receive_before(const Action& action, const std::vector<int>& rank_of_stage);

// The stage whose result of the same microbatch a forward or backward needs; -1 at the end of the pipeline.
int stage_needed_by(const Action& action, int stages);

}  // namespace gantry::schedule
