// The part of a job that receives the events of its ranks.
#include <array>
#include <csignal>
#include <fmt/format.h>

#include "gantry/comm/control/timers.h"
#include "gantry/core/base/steady_seconds.h"
#include "gantry/core/error.h"
#include "gantry/core/host/this_host.h"
#include "gantry/launch/supervisor/job.h"

namespace gantry::launcher {

using namespace control;

std::string Job::refusal(const Hello& hello) const {
  if (hello.peer == Peer::rank) return hub_.refusal(hello);
  return seats_[static_cast<std::size_t>(hello.rank)]->shim ? fmt::format("rank {} is already connected", hello.rank)
                                                            : "";
}

void Job::welcome(const Hello& hello, const ShimConnection& connection) {
  if (hello.peer == Peer::rank) return hub_.welcome(hello.rank, connection);
  RankSlot& here = seat(hello.rank);
  here.shim = connection;
  here.host = hello.host;
  here.shim_process = hello.host == host_name() ? hello.process : 0;
  shims_.heard(hello.rank);
  connection->send(encode_command(options_.program));
  if (comes_too_late(hello.rank)) connection->send(encode_frame(FrameKind::kill));
  if (end_.asked_by != 0) connection->send(encode_number(FrameKind::signal, SIGUSR1));
  if (paused_) connection->send(encode_frame(FrameKind::pause));
  spawn(context_, hear_shim(hello.rank));
}

asio::awaitable<void> Job::hear_shim(int rank) {
  bool out_of_reach = false;
  const ShimConnection shim = seat(rank).shim;
  try {
    while (seat(rank).shim == shim && seat(rank).is_running()) {
      const Frame frame = co_await shim->read();
      shims_.heard(rank);
      take(rank, frame);
    }
  } catch (const FrameError&) {
    // The peer does not follow the protocol, so it is not a shim any more.
  } catch (const boost::system::system_error& error) {
    out_of_reach = is_out_of_reach(error.code());
  }
  if (!closed_ && seat(rank).shim == shim && seat(rank).is_running()) lose(rank, out_of_reach);
}

void Job::take(int rank, const Frame& frame) {
  switch (frame.kind) {
    case FrameKind::beat:
      return;
    case FrameKind::output:
      output_.rank_bytes(rank, Stream::kOut, frame.payload);
      return pause_if_behind();
    case FrameKind::errors:
      output_.rank_bytes(rank, Stream::kErr, frame.payload);
      return pause_if_behind();
    case FrameKind::begun:
      return output_.rank_began(rank, seat(rank).host, std::to_string(decode_number(frame.payload)));
    case FrameKind::notified:
      seat(rank).notified = true;
      return;
    case FrameKind::stopped:
      return take_stop(rank, decode_number(frame.payload));
    case FrameKind::report: {
      const auto end = decode_end(frame.payload);
      if (!end) throw FrameError("an invalid exit report");
      return end_rank(rank, *end);
    }
    default:
      throw FrameError(fmt::format("frame kind {} from a shim", static_cast<int>(frame.kind)));
  }
}

void Job::take_stop(int rank, int signal) {
  RankSlot& here = seat(rank);
  here.stands_still = signal != 0;
  here.stopped_or_woken = steady_seconds();
  here.patience.cancel();
  if (signal == 0) return;
  here.stop_signal = signal;
  spawn(context_, watch_stopped(rank));
}

asio::awaitable<void> Job::watch_stopped(int rank) {
  RankSlot& here = seat(rank);
  error_code cancelled;
  const std::array waits = {options_.stopped_seconds, kReadFirstSeconds};
  for (const double wait : waits) {
    here.patience.expires_after(seconds(wait));
    co_await here.patience.async_wait(asio::redirect_error(asio::use_awaitable, cancelled));
    if (cancelled) co_return;
  }
  if (!here.is_running() || escalation_.has_begun()) co_return;
  here.shim->send(encode_frame(FrameKind::kill));
  end_rank(rank, {.kind = RankEnd::Kind::kStopped, .number = here.stop_signal});
}

// Handles a connection that ended without a report: the host is gone, or the shim was killed, and the program
// with it.
void Job::lose(int rank, bool out_of_reach) {
  RankEnd end{
      .kind = RankEnd::Kind::kSignal, .number = SIGKILL, .notified = seat(rank).notified || escalation_.has_begun()};
  if (out_of_reach) end.kind = RankEnd::Kind::kLost;
  end_rank(rank, end);
}

void Job::lose_silent(int rank) {
  RankSlot& here = seat(rank);
  if (!here.is_running() || escalation_.has_begun()) return;
  end_rank(rank, {.kind = RankEnd::Kind::kSilent});
  if (here.shim_process > 0) ::kill(here.shim_process, SIGKILL);  // the program ends with its shim
}

// A rank has left the hub before its work was done. If its connection has closed, its shim reports in a
// moment how its program ended. A program that lives on, for example a suspended one, leaves the job.
asio::awaitable<void> Job::watch_closed(JobFailure failure) {
  RankSlot& here = seat(failure.rank);
  here.report.expires_after(seconds(hub_.is_connected(failure.rank) ? 0 : kReportSeconds));
  error_code cancelled;
  co_await here.report.async_wait(asio::redirect_error(asio::use_awaitable, cancelled));
  if (cancelled || spare_.contains(failure.rank)) co_return;
  if (!here.is_running() || !hub_.membership()) hub_.fail(failure);
  if (!here.is_running()) co_return escalation_.begin();
  here.shim->send(encode_frame(FrameKind::kill));
  end_rank(failure.rank,
           {.kind = here.stands_still ? RankEnd::Kind::kStopped : RankEnd::Kind::kLeft, .number = here.stop_signal});
}

void Job::end_rank(int rank, RankEnd end) {
  RankSlot& here = seat(rank);
  end.rank = rank;
  if (several_hosts_) end.host = here.host;
  // mpirun wakes stopped processes that it is about to end.
  const bool just_woken = here.stop_signal != 0 && steady_seconds() - here.stopped_or_woken < kJustWokenSeconds;
  if (end.failed() && end.notified && (here.stands_still || just_woken)) {
    end.kind = RankEnd::Kind::kStopped;
    end.number = here.stop_signal;
  }
  here.ended = true;
  here.patience.cancel();
  shims_.forget(rank);
  output_.rank_ended(rank);
  if (spare_.contains(rank) || continues_without(rank, end)) {
    here.shim->close_when_sent();
    rejoin(rank);
    end_starters();
    return look_at_mpirun();
  }
  end_.ranks.push_back(end);
  if (end.failed() && !end.notified) {
    hub_.fail({rank, end.exit_code(), describe_end(end)});
    escalation_.begin();
  }
  here.shim->close_when_sent();  // a shim that has sent its report waits for this
  end_starters();
  look_at_mpirun();
}

// While the reader of the output (a terminal or a pager) is behind, the ranks wait at their full pipes. No
// output is lost.
void Job::pause_if_behind() {
  if (paused_ || !output_.is_behind()) return;
  paused_ = true;
  send_to_all(encode_frame(FrameKind::pause));
  spawn(context_, resume_later());
}

asio::awaitable<void> Job::resume_later() {
  error_code cancelled;
  while (!closed_ && !output_.has_caught_up()) {
    output_timer_.expires_after(seconds(kOutputLookSeconds));
    co_await output_timer_.async_wait(asio::redirect_error(asio::use_awaitable, cancelled));
  }
  paused_ = false;
  send_to_all(encode_frame(FrameKind::resume));
}

void Job::send_to_all(const std::string& frame) {
  for (const auto& here : seats_)
    if (here->is_running()) here->shim->send(frame);
}

}  // namespace gantry::launcher
