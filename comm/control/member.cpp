#include "gantry/comm/control/member.h"

#include <fmt/format.h>
#include <unistd.h>
#include <utility>

#include "gantry/comm/control/timers.h"
#include "gantry/core/error.h"
#include "gantry/core/host/this_host.h"

namespace gantry::control {

Member::Member(asio::io_context& context, const ControlOptions& options, const ControlEvents& events,
               Milestones& milestones)
    : context_(context),
      options_(options),
      events_(events),
      milestones_(milestones),
      pulse_(context,
             {.heartbeat = options.heartbeat_seconds,
              .lost_after = is_watched() ? options.lost_after_seconds : 0,
              .beat = [this] { beat(); },
              .lost = [this](int, double silent) { lose_hub(silence_text(silent, options_.lost_after_seconds)); }}) {}

void Member::join(const Rendezvous& meeting) {
  token_ = meeting.token;
  const tcp::endpoint hub(asio::ip::make_address(meeting.address), static_cast<std::uint16_t>(meeting.port));
  spawn(context_, connect(hub));
  if (options_.heartbeat_seconds > 0) pulse_.start();
}

asio::awaitable<void> Member::connect(tcp::endpoint hub) {
  while (!closing_) {
    tcp::socket socket(context_);
    error_code error;
    co_await socket.async_connect(hub, asio::redirect_error(asio::use_awaitable, error));
    if (closing_) break;
    std::string trouble = error.message();
    if (!error) {
      const std::string own = socket.local_endpoint(error).address().to_string();
      milestones_.update([&](Progress& progress) { progress.address = own; });
      connection_ = std::make_shared<Connection>(std::move(socket));
      if (options_.hub == HubPlace::launch) connection_->watch_network();
      send(encode_hello({.token = token_,
                         .peer = Peer::rank,
                         .rank = options_.rank,
                         .ranks = options_.ranks,
                         .process = ::getpid(),
                         .host = host_name()}));
      pulse_.heard(0);
      if (!co_await converse(connection_)) break;
      trouble = "it closes connections without an answer";
    }
    milestones_.update([&](Progress& progress) { progress.trouble = trouble; });
    asio::steady_timer timer(context_, seconds(kRetrySeconds));
    co_await timer.async_wait(asio::use_awaitable);
  }
}

asio::awaitable<bool> Member::converse(std::shared_ptr<Connection> connection) {
  std::string how = kClosedText;
  bool turned_away = false;
  try {
    while (!closing_) {
      const Frame frame = co_await connection->read();
      if (!std::exchange(answered_, true)) milestones_.update([](Progress& progress) { progress.trouble.clear(); });
      pulse_.heard(0);
      take(frame);
    }
  } catch (const FrameError& error) {
    how = unreadable_text(error);
  } catch (const boost::system::system_error&) {
    turned_away = !answered_ && !over();
  }
  connection->close();
  connection_.reset();
  pulse_.forget(0);
  if (!turned_away) lose_hub(how);
  co_return turned_away;
}

void Member::take(const Frame& frame) {
  switch (frame.kind) {
    case FrameKind::beat:
      return;
    case FrameKind::begin:
      begun_ = true;
      return milestones_.update([](Progress& progress) { progress.begun = true; });
    case FrameKind::failure:
      return hear(decode_failure(frame.payload, options_.ranks));
    case FrameKind::end:
      return end();
    case FrameKind::late: {
      const std::set<int> late = decode_ranks(frame.payload, options_.ranks);
      return milestones_.update([&](Progress& progress) { progress.late = late; });
    }
    case FrameKind::left:
      return events_.on_left(decode_ranks(frame.payload, options_.ranks));
    case FrameKind::share: {
      const Share share = decode_share(frame.payload, options_.ranks);
      return milestones_.update([&](Progress& progress) {
        if (share.generation == progress.members.generation) progress.shared[share.rank] = share.bytes;
      });
    }
    case FrameKind::regroup:
      return regroup(decode_members(frame.payload, options_.ranks));
    case FrameKind::waiting:
      return events_.on_waiting();
    case FrameKind::record:
      return events_.on_record();
    case FrameKind::stop:
      if (!std::exchange(stops_, true)) events_.on_stop();
      return;
    default:
      throw FrameError(fmt::format("frame kind {} from the hub", static_cast<int>(frame.kind)));
  }
}

// The event precedes the milestone, so that a thread which the milestone wakes finds the operations of the
// last generation ended.
void Member::regroup(const JobMembers& members) {
  begun_ = true;
  events_.on_regroup(members);
  milestones_.update([&](Progress& progress) {
    progress.begun = true;
    progress.members = members;
    progress.shared.clear();
  });
}

void Member::tell(const JobFailure& failure) {
  if (over() || notified_) return;
  notified_ = failure;
  if (!connection_) return hear(failure);
  send(encode_failure(failure));
}

void Member::hear(const JobFailure& failure) { fail(failure, events_.on_abort); }

void Member::lose(const JobFailure& failure) { fail(failure, events_.on_lost); }

// The event precedes the milestone, so that the failure is known when the milestone wakes a thread, which
// then fails with this cause.
void Member::fail(const JobFailure& failure, const std::function<void(const JobFailure&)>& event) {
  if (over()) return;
  failed_ = true;
  event(failure);
  milestones_.update([&](Progress& progress) { progress.failure = failure; });
}

// If the hub is gone, it cannot decide which failure counts, so this rank uses its own. A launch that ends
// also ends its ranks.
void Member::lose_hub(const std::string& how) {
  if (notified_) return hear(*notified_);
  if (options_.hub != HubPlace::rank0 || over()) return;
  const JobFailure failure{0, PeerError::kExitCode, options_.describe_rank(0) + ": " + how};
  send(encode_failure(failure));  // if rank 0 was suspended, it reads on waking why the job ends
  lose(failure);
}

void Member::end() {
  ended_ = true;
  pulse_.stop();
  if (connection_) connection_->close_when_sent();
  milestones_.update([](Progress& progress) { progress.ended = true; });
}

void Member::close() {
  closing_ = true;
  pulse_.stop();
  if (connection_) connection_->close_when_sent();
}

// A stop request is sent only after all ranks have connected.
void Member::beat() {
  if (begun_ && !stops_ && !over() && options_.wants_stop()) {
    stops_ = true;
    send(encode_frame(FrameKind::stop));
  }
  if ((is_watched() || options_.beats) && connection_ && !connection_->sending()) send(encode_frame(FrameKind::beat));
}

void Member::send(const std::string& frame) {
  if (connection_) connection_->send(frame);
}

}  // namespace gantry::control
