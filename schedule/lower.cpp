#include <algorithm>

#include "gantry/core/error.h"
#include "gantry/schedule/action_table.h"
#include "gantry/schedule/validate.h"
#include "gantry/schedule/vocabulary_actions.h"

namespace gantry::schedule {
namespace {

// Rough durations of actions, used only to choose between receives that could be moved.
double usual_cost(ActionKind kind) {
  if (role_of(kind) != ActionRole::kCompute) return 0;
  return kind == ActionKind::kBackward ? 2 : 1;
}

// A row with its messages next to the computations that produce and consume them.
std::vector<Action> with_messages(const std::vector<Action>& row, const std::vector<int>& rank_of_stage) {
  std::vector<Action> all;
  all.reserve(3 * row.size());
  for (int start = 0; start < static_cast<int>(row.size()); start += width_at(row, start)) {
    const int end = start + width_at(row, start);
    for (int i = start; i < end; ++i)
      if (const auto receive = receive_before(row[i], rank_of_stage)) all.push_back(*receive);
    all.insert(all.end(), row.begin() + start, row.begin() + end);
    for (int i = start; i < end; ++i)
      if (const auto send = send_after(row[i], rank_of_stage)) all.push_back(*send);
  }
  return all;
}

// Executes the rows with messages that block on both sides. If no rank can continue, one send of the cycle of waiting
// ranks is executed early: its receive moves to the current position of the receiving rank. The result has therefore
// been executed once under rendezvous, in the order in which it is written.
class Lowering {
 public:
  explicit Lowering(const Schedule& schedule)
      : rank_of_stage_(ranks_by_stage(schedule)),
        result_(schedule),
        next_(schedule.ranks(), 0),
        clock_(schedule.ranks(), 0),
        received_forward_(schedule.stages(), schedule.microbatches, 0),
        received_backward_(schedule.stages(), schedule.microbatches, 0) {
    for (auto& row : result_.actions) {
      rows_.push_back(with_messages(row, rank_of_stage_));
      row.clear();
      row.reserve(rows_.back().size());
    }
  }

  Schedule run() {
    for (int rank = 0; rank < result_.ranks(); ++rank) to_try_.push_back(rank);
    do {
      while (!to_try_.empty()) {
        const int rank = to_try_.back();
        to_try_.pop_back();
        advance(rank);
      }
    } while (resolve_cycle());
    return std::move(result_);
  }

 private:
  bool finished(int rank) const { return next_[rank] == static_cast<int>(rows_[rank].size()); }
  const Action& current(int rank) const { return rows_[rank][next_[rank]]; }
  int peer_of(const Action& message) const { return rank_of_stage_[matching_message(message).stage]; }
  char& received(const Action& receive) {
    auto& grid = receive.kind == ActionKind::kRecvForward ? received_forward_ : received_backward_;
    return grid.at(receive.stage, receive.microbatch);
  }

  void skip_received(int rank);
  void advance(int rank);
  void transfer(const Action& send, int sender, int receiver);
  bool resolve_cycle();
  int earliest_blocked_send(int blocked_rank) const;

  std::vector<int> rank_of_stage_;
  Schedule result_;
  std::vector<std::vector<Action>> rows_;
  std::vector<int> next_;
  std::vector<double> clock_;
  StageGrid<char> received_forward_;
  StageGrid<char> received_backward_;
  std::vector<int> to_try_;
};

// Skips receives that have been moved to an earlier position.
void Lowering::skip_received(int rank) {
  while (!finished(rank) && current(rank).is_message() && !is_send(current(rank).kind) && received(current(rank)))
    ++next_[rank];
}

void Lowering::advance(int rank) {
  for (skip_received(rank); !finished(rank); skip_received(rank)) {
    const Action action = current(rank);
    if (!action.is_message()) {
      result_.actions[rank].push_back(action);
      clock_[rank] += usual_cost(action.kind);
      ++next_[rank];
      continue;
    }
    const int peer = peer_of(action);
    skip_received(peer);
    if (finished(peer) || current(peer) != matching_message(action)) return;
    const bool sends = is_send(action.kind);
    transfer(sends ? action : current(peer), sends ? rank : peer, sends ? peer : rank);
    to_try_.push_back(peer);
  }
}

// Moves the receive to the receiver's current position, whether or not the receiver has reached it.
void Lowering::transfer(const Action& send, int sender, int receiver) {
  const Action receive = matching_message(send);
  result_.actions[sender].push_back(send);
  result_.actions[receiver].push_back(receive);
  received(receive) = 1;
  clock_[receiver] = std::max(clock_[receiver], clock_[sender]);
  ++next_[sender];
}

// True if some rank was blocked and a rank of its cycle can continue now; false if all have finished.
bool Lowering::resolve_cycle() {
  for (int rank = 0; rank < result_.ranks(); ++rank) {
    if (finished(rank)) continue;
    const int sender = earliest_blocked_send(rank);
    const Action send = current(sender);
    const int receiver = peer_of(send);
    transfer(send, sender, receiver);
    to_try_ = {receiver, sender};
    return true;
  }
  return false;
}

// Searches the cycle that `blocked_rank` waits for. A cycle of receives only would be a cycle of data, which validate()
// rejects. Chooses the send that has been ready for the longest time, because its receive costs the receiver the least
// waiting.
int Lowering::earliest_blocked_send(int blocked_rank) const {
  std::vector<int> chain;
  int rank = blocked_rank;
  while (std::ranges::find(chain, rank) == chain.end()) {
    chain.push_back(rank);
    rank = peer_of(current(rank));
  }
  int best = -1;
  for (auto each = std::ranges::find(chain, rank); each != chain.end(); ++each)
    if (is_send(current(*each).kind) && (best < 0 || clock_[*each] < clock_[best])) best = *each;
  if (best < 0) throw InternalError({"schedule " + result_.name, "lowering found a cycle without a send", "", ""});
  return best;
}

}  // namespace

Schedule lower(const Schedule& schedule) {
  validate(schedule);
  if (is_lowered(schedule)) return schedule;
  if (!has_vocabulary(schedule)) return Lowering(schedule).run();
  // A receive that was moved up could precede a pass that its sender waits for. Sends do not block in that case.
  Schedule lowered = schedule;
  for (auto& row : lowered.actions) row = with_messages(row, ranks_by_stage(schedule));
  return lowered;
}

}  // namespace gantry::schedule
