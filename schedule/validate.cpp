#include "gantry/schedule/validate.h"

#include <algorithm>
#include <cstdint>

#include "gantry/core/error.h"
#include "gantry/schedule/action_table.h"
#include "gantry/schedule/extra_actions.h"
#include "gantry/schedule/progress.h"
#include "gantry/schedule/vocabulary_actions.h"

namespace gantry::schedule {
namespace {

// The state of one validation. Each check relies on the checks before it.
class Validator {
 public:
  explicit Validator(const Schedule& schedule) : schedule_(schedule) {}

  void run() {
    check_shape();
    check_placement();
    for (int rank = 0; rank < schedule_.ranks(); ++rank) check_row(rank);
    check_forward_count();
    build_table();
    for (int stage = 0; stage < stages(); ++stage)
      for (int microbatch = 0; microbatch < schedule_.microbatches; ++microbatch) check_computations(stage, microbatch);
    if (has_vocabulary(schedule_)) vocabulary_.emplace(schedule_);
    for (int rank = 0; rank < schedule_.ranks(); ++rank) check_order(rank);
    prove_extra_actions(schedule_);
    prove_progress(schedule_, *table_, rank_of_stage_, vocabulary_ ? &*vocabulary_ : nullptr);
  }

 private:
  int stages() const { return static_cast<int>(rank_of_stage_.size()); }
  const Action& action_at(int rank, int position) const { return schedule_.actions[rank][position]; }

  [[noreturn]] void refuse(const std::string& what, const std::string& expected = "") const {
    throw ConfigError({"schedule " + schedule_.name, what, expected, ""});
  }
  [[noreturn]] void refuse_at(int rank, int position, const std::string& what, const std::string& expected = "") const {
    throw ConfigError({"schedule " + schedule_.name + ", rank " + std::to_string(rank) + ", position " +
                           std::to_string(position) + ", " + to_string(action_at(rank, position)),
                       what, expected, ""});
  }
  [[noreturn]] void refuse_missing(const Action& action, const std::string& why) const {
    const int rank = rank_of_stage_[action.stage];
    throw ConfigError(
        {"schedule " + schedule_.name + ", rank " + std::to_string(rank), to_string(action) + " is missing", why, ""});
  }

  void check_shape() const;
  void check_placement();
  void check_row(int rank) const;
  void check_pair(int rank, int position) const;
  void check_message(int rank, int position) const;
  void check_forward_count() const;
  void build_table();
  void check_computations(int stage, int microbatch) const;
  void check_order(int rank) const;
  void check_data(int rank, int start, int position) const;
  void check_before(int rank, int start, int position, const Action& needed, const std::string& why) const;
  Action backward_of(int stage, int microbatch) const;

  const Schedule& schedule_;
  std::vector<int> rank_of_stage_;
  std::optional<ActionTable> table_;
  std::optional<VocabularyNeeds> vocabulary_;  // absent: the schedule has no such passes
  bool lowered_ = false;
  bool has_backward_ = false;
};

void Validator::check_shape() const {
  if (schedule_.ranks() < 1) refuse("the schedule has no rank", "a row of actions for each rank");
  if (schedule_.stages_of_rank.size() != schedule_.actions.size())
    refuse("the schedule places stages on " + std::to_string(schedule_.stages_of_rank.size()) +
           " ranks and has rows for " + std::to_string(schedule_.actions.size()));
  if (schedule_.microbatches < 1)
    refuse("the schedule has " + std::to_string(schedule_.microbatches) + " microbatches", "at least 1");
}

void Validator::check_placement() {
  std::vector<std::pair<int, int>> held;  // stage, rank
  for (int rank = 0; rank < schedule_.ranks(); ++rank)
    for (const int stage : schedule_.stages_of_rank[rank]) held.emplace_back(stage, rank);
  if (held.empty()) refuse("no rank holds a stage", "at least one stage");
  std::ranges::sort(held);
  for (std::size_t i = 0; i < held.size(); ++i) {
    const auto [stage, rank] = held[i];
    if (i > 0 && held[i - 1].first == stage)
      refuse("stage " + std::to_string(stage) + " is held by ranks " + std::to_string(held[i - 1].second) + " and " +
                 std::to_string(rank),
             "one rank");
    if (stage != static_cast<int>(i))
      refuse(stage < 0 ? "rank " + std::to_string(rank) + " holds stage " + std::to_string(stage)
                       : "no rank holds stage " + std::to_string(i) + ", but rank " + std::to_string(rank) +
                             " holds stage " + std::to_string(stage),
             "stages from 0 on without a gap");
    rank_of_stage_.push_back(rank);
  }
}

void Validator::check_row(int rank) const {
  const auto& row = schedule_.actions[rank];
  for (int position = 0; position < static_cast<int>(row.size()); ++position) {
    const auto [stage, microbatch] = std::pair(row[position].stage, row[position].microbatch);
    if (stage < 0 || stage >= stages())
      refuse_at(rank, position, "there is no stage " + std::to_string(stage), "0 to " + std::to_string(stages() - 1));
    if (rank_of_stage_[stage] != rank)
      refuse_at(rank, position,
                "stage " + std::to_string(stage) + " is held by rank " + std::to_string(rank_of_stage_[stage]));
    if (!has_microbatch(row[position].kind)) {
      if (microbatch != kNoMicrobatch)
        refuse_at(rank, position, "the action has the microbatch " + std::to_string(microbatch),
                  "no microbatch, because the action is for the full stage");
    } else if (microbatch < 0 || microbatch >= schedule_.microbatches)
      refuse_at(rank, position, "there is no microbatch " + std::to_string(microbatch),
                "0 to " + std::to_string(schedule_.microbatches - 1));
    if (row[position].overlaps_next) check_pair(rank, position);
    if (row[position].is_message()) check_message(rank, position);
  }
}

void Validator::check_pair(int rank, int position) const {
  const auto& row = schedule_.actions[rank];
  if (position + 1 == static_cast<int>(row.size()))
    refuse_at(rank, position, "the action overlaps the next one, but the row ends");
  const Action& partner = row[position + 1];
  if (row[position].kind != ActionKind::kForward || !is_backward(partner.kind) || partner.overlaps_next)
    refuse_at(rank, position, "the action overlaps " + to_string(partner), "a forward overlapped with one backward");
}

// A message needs a neighbouring stage on another rank.
void Validator::check_message(int rank, int position) const {
  const Action& message = action_at(rank, position);
  const Action other = matching_message(message);
  if (other.stage < 0 || other.stage >= stages())
    refuse_at(rank, position, "stage " + std::to_string(message.stage) + " is at the end of the pipeline",
              "no message there");
  if (rank_of_stage_[other.stage] == rank)
    refuse_at(rank, position, "stage " + std::to_string(other.stage) + " is also on this rank",
              "no message between stages of one rank");
}

// Runs before any table is allocated: it ensures that the size of the tables is bounded by the number of actions.
void Validator::check_forward_count() const {
  const auto key = [&](const Action& action) {
    return std::int64_t{action.stage} * schedule_.microbatches + action.microbatch;
  };
  std::vector<std::int64_t> keys;
  for (const auto& row : schedule_.actions)
    for (const auto& action : row)
      if (action.kind == ActionKind::kForward) keys.push_back(key(action));
  if (static_cast<std::int64_t>(keys.size()) >= std::int64_t{stages()} * schedule_.microbatches) return;
  std::ranges::sort(keys);
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  std::int64_t missing = 0;
  while (missing < static_cast<std::int64_t>(keys.size()) && keys[missing] == missing) ++missing;
  refuse_missing({ActionKind::kForward, static_cast<int>(missing / schedule_.microbatches),
                  static_cast<int>(missing % schedule_.microbatches)},
                 "a forward of every stage and microbatch");
}

void Validator::build_table() {
  table_.emplace(stages(), schedule_.microbatches, has_vocabulary(schedule_));
  for (int rank = 0; rank < schedule_.ranks(); ++rank) {
    const auto& row = schedule_.actions[rank];
    for (int position = 0; position < static_cast<int>(row.size()); ++position) {
      const Action& action = row[position];
      if (action.is_extra()) continue;
      int& entry = table_->position(action.kind, action.stage, action.microbatch);
      if (entry >= 0)
        refuse_at(rank, position, "the same action is already at position " + std::to_string(entry),
                  "each action once");
      entry = position;
      lowered_ = lowered_ || action.is_message();
      has_backward_ = has_backward_ ||
                      (action.is_compute() && action.kind != ActionKind::kForward && !is_of_vocabulary(action.kind));
    }
  }
}

// The backward that passes a gradient on: B, or I of a split one.
Action Validator::backward_of(int stage, int microbatch) const {
  const Action full{ActionKind::kBackward, stage, microbatch};
  return table_->has(full) ? full : Action{ActionKind::kInputGradient, stage, microbatch};
}

// Exactly one F and, if there is any backward, either B or both I and W; in a lowered schedule also their messages.
void Validator::check_computations(int stage, int microbatch) const {
  const Action forward{ActionKind::kForward, stage, microbatch};
  const Action full{ActionKind::kBackward, stage, microbatch};
  const Action input{ActionKind::kInputGradient, stage, microbatch};
  const Action weight{ActionKind::kWeightGradient, stage, microbatch};
  if (!table_->has(forward)) refuse_missing(forward, "a forward of every stage and microbatch");
  if (has_backward_) {
    for (const auto& part : {input, weight})
      if (table_->has(full) && table_->has(part))
        refuse_at(rank_of_stage_[stage], table_->position(part),
                  to_string(full) + " already computes the full backward", "B, or I and W");
    if (table_->has(input) && !table_->has(weight)) refuse_missing(weight, "a weight gradient for " + to_string(input));
    if (table_->has(weight) && !table_->has(input)) refuse_missing(input, "an input gradient for " + to_string(weight));
    if (!table_->has(full) && !table_->has(input))
      refuse_missing(full, "a backward (B, or I and W) of every stage and microbatch");
  }
  if (!lowered_) return;
  for (const auto& action : {forward, backward_of(stage, microbatch)}) {
    if (action.kind != ActionKind::kForward && !has_backward_) continue;
    if (const auto send = send_after(action, rank_of_stage_); send && !table_->has(*send))
      refuse_missing(*send, "a send for " + to_string(matching_message(*send)) + " on rank " +
                                std::to_string(rank_of_stage_[matching_message(*send).stage]));
    if (const auto receive = receive_before(action, rank_of_stage_); receive && !table_->has(*receive))
      refuse_missing(*receive, "a receive for " + to_string(matching_message(*receive)) + " on rank " +
                                   std::to_string(rank_of_stage_[matching_message(*receive).stage]));
  }
}

// Checks within one row: an action must not precede the action on the same rank that produces its data.
void Validator::check_order(int rank) const {
  const auto& row = schedule_.actions[rank];
  for (int start = 0; start < static_cast<int>(row.size()); start += width_at(row, start))
    for (int position = start; position < start + width_at(row, start); ++position) check_data(rank, start, position);
}

// `start` is the position of the action, or of the pair that contains it.
void Validator::check_data(int rank, int start, int position) const {
  const Action action = action_at(rank, position);
  const auto [stage, microbatch] = std::pair(action.stage, action.microbatch);
  const Action forward{ActionKind::kForward, stage, microbatch};
  if (action.kind == ActionKind::kWeightGradient)
    check_before(rank, start, position, {ActionKind::kInputGradient, stage, microbatch}, "the input gradient");
  if (action.kind == ActionKind::kSendForward) check_before(rank, start, position, forward, "the data to send");
  if (action.kind == ActionKind::kSendBackward) {
    if (!has_backward_)
      refuse_at(rank, position, "no backward produces its data", "no gradient message without backwards");
    check_before(rank, start, position, backward_of(stage, microbatch), "the gradient to send");
  }
  if (action.kind == ActionKind::kRecvBackward && !has_backward_)
    refuse_at(rank, position, "no backward needs this message", "no gradient message without backwards");
  if (is_backward(action.kind)) check_before(rank, start, position, forward, "its forward");
  if (const auto receive = receive_before(action, rank_of_stage_); receive && lowered_)
    check_before(rank, start, position, *receive, "its data");
  if (vocabulary_)
    for (const Need& need : vocabulary_->of(action))
      if (!need.begun && rank_of_stage_[need.action.stage] == rank)
        check_before(rank, start, position, need.action, "its data");
  const int needed = stage_needed_by(action, stages());
  if (needed >= 0 && rank_of_stage_[needed] == rank)
    check_before(rank, start, position,
                 action.kind == ActionKind::kForward ? Action{ActionKind::kForward, needed, microbatch}
                                                     : backward_of(needed, microbatch),
                 "its data");
}

void Validator::check_before(int rank, int start, int position, const Action& needed, const std::string& why) const {
  const int found = table_->position(needed);
  if (found < start) return;
  refuse_at(rank, position,
            found < start + width_at(schedule_.actions[rank], start)
                ? "the action overlaps " + to_string(needed) + ", which produces " + why
                : "the action precedes " + to_string(needed) + " (position " + std::to_string(found) +
                      "), which produces " + why,
            "a position after that action");
}

}  // namespace

void validate(const Schedule& schedule) { Validator(schedule).run(); }

}  // namespace gantry::schedule
