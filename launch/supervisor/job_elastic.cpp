// The loss of ranks in an elastic job: it continues without their replica, and starts them again.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gantry/launch/job_start.h"
#include "gantry/launch/supervisor/job.h"
#include "gantry/launch/supervisor/rank_starter.h"

namespace gantry::launcher {

using namespace control;

namespace {

// Before the first attempt to start a replica again there is no pause, then 1, 2, 4, ... seconds.
constexpr double kLongestPauseSeconds = 60;

double pause_before(int tries) { return tries == 0 ? 0 : std::min(kLongestPauseSeconds, std::exp2(tries - 1)); }

}  // namespace

// A program that ended by itself is not a loss: another start would not remove the cause.
bool Job::continues_without(int rank, const RankEnd& end) {
  const bool is_loss = end.failed() && !end.notified && end.kind != RankEnd::Kind::kExit;
  const Membership* job = hub_.membership();
  if (!is_loss || !job || escalation_.has_begun()) return false;
  const std::set<int> replica = job->replica_of(rank);
  if (!hub_.lose_replica(rank)) return false;
  continued_ = true;
  const std::size_t left = job->ranks().size() / replica.size();
  output_.note(fmt::format("{}; the job continues with {} replica{}", describe_end(end), left, left == 1 ? "" : "s"));
  for (const int other : replica) {
    spare_.insert(other);
    seat(other).report.cancel();
  }
  return true;
}

// True for a rank that was started again after another rank of its replica has ended: the replica cannot
// join.
bool Job::comes_too_late(int rank) const {
  const Membership* job = hub_.membership();
  if (over_ || !job || !spare_.contains(rank)) return over_;
  return std::ranges::any_of(job->replica_of(rank),
                             [this](int other) { return seats_[static_cast<std::size_t>(other)]->ended; });
}

// Ends the other ranks of the replica of a rank that has ended, and starts the replica again when all have
// ended.
void Job::rejoin(int rank) {
  const Membership* job = hub_.membership();
  if (!job) return;
  const std::set<int> replica = job->replica_of(rank);
  for (const int other : replica)
    if (seat(other).is_running()) seat(other).shim->send(encode_frame(FrameKind::kill));
  if (!job->policy().rejoin || escalation_.has_begun() || end_.asked_by != 0 || over_) return;
  if (std::ranges::all_of(replica, [this](int other) { return seat(other).ended; }))
    spawn(context_, start_again(replica));
}

asio::awaitable<void> Job::start_again(std::set<int> replica) {
  RankSlot& first = seat(*replica.begin());
  first.patience.expires_after(seconds(pause_before(tries_[*replica.begin()]++)));
  error_code cancelled;
  co_await first.patience.async_wait(asio::redirect_error(asio::use_awaitable, cancelled));
  if (cancelled || closed_ || over_ || escalation_.has_begun()) co_return;
  for (const int rank : replica) {
    RankSlot& here = seat(rank);
    here.shim.reset();
    here.host.clear();
    here.shim_process = here.stop_signal = 0;
    here.notified = here.ended = here.stands_still = false;
  }
  again_.push_back({replica, start_ranks({{JobStart::kJoinsVariable, "1"},
                                          {kOnlyRanksVariable, fmt::format("{}", fmt::join(replica, ","))}})});
}

// A replica whose starter has ended before its ranks began, because its host is unreachable for example, is
// started again too.
void Job::look_at_restarts() {
  std::vector<Restart> ended;
  for (Restart& restart : again_) {
    output_.mpirun_bytes(restart.starter->read_output());
    if (restart.starter->poll_end()) ended.push_back(std::move(restart));
  }
  std::erase_if(again_, [](const Restart& restart) { return !restart.starter; });
  for (const Restart& restart : ended) {
    const bool has_another =
        std::ranges::any_of(again_, [&](const Restart& other) { return other.replica == restart.replica; });
    const auto began = [this](int rank) { return seat(rank).shim || seat(rank).ended; };
    if (has_another || std::ranges::all_of(restart.replica, began)) continue;
    for (const int rank : restart.replica)
      if (!began(rank)) seat(rank).ended = true;
    rejoin(*restart.replica.begin());
  }
}

void Job::take_in(const std::set<int>& joined) {
  if (joined.empty()) return;
  for (const int rank : joined) {
    spare_.erase(rank);
    tries_.erase(rank);
  }
  output_.note(fmt::format("rank{} {} joined the job", joined.size() == 1 ? "" : "s", fmt::join(joined, ", ")));
}

// When the work of an elastic job is done, a starter may still wait for a host that is unreachable.
void Job::end_starters() {
  if (over_ && std::ranges::none_of(seats_, [](const auto& here) { return here->is_running(); })) escalation_.begin();
}

// Kills the ranks that have not joined in time.
void Job::end_spares() {
  over_ = true;
  for (const int rank : spare_)
    if (seat(rank).is_running()) seat(rank).shim->send(encode_frame(FrameKind::kill));
}

}  // namespace gantry::launcher
