#include "gantry/comm/control/heartbeats.h"

#include <algorithm>
#include <cstdio>
#include <fmt/format.h>
#include <utility>

#include "gantry/core/error.h"
#include "gantry/core/steady_seconds.h"

namespace gantry::control {
namespace {

constexpr std::size_t kMostPending = 64;  // at a time, beyond the job's own ranks
constexpr int kMostWarnings = 20;
constexpr double kRetrySeconds = 0.2;

ControlOptions complete(ControlOptions options) {
  if (!options.warn)
    options.warn = [](const std::string& line) { std::fprintf(stderr, "warning: %s\n", line.c_str()); };
  if (!options.wants_stop) options.wants_stop = [] { return false; };
  return options;
}

ControlEvents complete(ControlEvents events) {
  if (!events.on_left) events.on_left = [](const std::set<int>&) {};
  if (!events.on_stop) events.on_stop = [] {};
  return events;
}

asio::awaitable<void> pause(asio::io_context& context, double duration) {
  asio::steady_timer timer(context, seconds(duration));
  co_await timer.async_wait(asio::use_awaitable);
}

}  // namespace

Heartbeats::Heartbeats(asio::io_context& context, ControlOptions options, ControlEvents events, Milestones& milestones)
    : context_(context),
      options_(complete(std::move(options))),
      events_(complete(std::move(events))),
      milestones_(milestones),
      acceptor_(context),
      timer_(context),
      silence_(options_.heartbeat_seconds, options_.lost_after_seconds, steady_seconds()) {}

Meeting Heartbeats::open(const std::string& address) {
  token_ = random_job_token();
  try {
    const tcp::endpoint endpoint(asio::ip::make_address(address), 0);
    acceptor_.open(endpoint.protocol());
    acceptor_.bind(endpoint);
    acceptor_.listen();
  } catch (const boost::system::system_error& error) {
    throw ResourceError({"control plane", "can't listen on " + address + ": " + error.code().message(),
                         "an address of this host", "set comm.interface, or comm.heartbeat_seconds to 0"});
  }
  milestones_.update([this](Progress& progress) {
    for (int rank = 0; rank < options_.ranks; ++rank) {
      if (rank > 0) progress.absent.insert(rank);
      progress.working.insert(rank);
    }
    progress.begun = progress.absent.empty();
  });
  asio::co_spawn(context_, accept_all(), asio::detached);
  asio::co_spawn(context_, pulse(), asio::detached);
  return {address, acceptor_.local_endpoint().port(), token_};
}

void Heartbeats::join(const Meeting& meeting) {
  token_ = meeting.token;
  const tcp::endpoint hub(asio::ip::make_address(meeting.address), static_cast<std::uint16_t>(meeting.port));
  asio::co_spawn(context_, connect(hub), asio::detached);
  asio::co_spawn(context_, pulse(), asio::detached);
}

asio::awaitable<void> Heartbeats::accept_all() {
  while (acceptor_.is_open()) {
    error_code error;
    tcp::socket socket = co_await acceptor_.async_accept(asio::redirect_error(asio::use_awaitable, error));
    if (closing_ || !acceptor_.is_open()) break;
    if (error)
      co_await pause(context_, kRetrySeconds);  // out of descriptors, say
    else if (pending_.size() < kMostPending + static_cast<std::size_t>(options_.ranks))
      asio::co_spawn(context_, greet(std::make_shared<Connection>(std::move(socket))), asio::detached);
  }
}

asio::awaitable<void> Heartbeats::greet(std::shared_ptr<Connection> connection) {
  pending_.insert(connection);
  asio::steady_timer deadline(context_, seconds(options_.handshake_seconds));
  deadline.async_wait([connection](const error_code& error) {
    if (!error) connection->close();
  });
  Hello hello;
  std::string why;
  try {
    const Frame frame = co_await connection->read();
    if (frame.kind != FrameKind::hello) throw FrameError("its first frame is no hello");
    hello = decode_hello(frame.payload);
    why = refusal(hello);
  } catch (const FrameError& error) {
    why = error.what();
  } catch (const boost::system::system_error&) {
    why = fmt::format("it said not who it is within {} s", options_.handshake_seconds);
  }
  deadline.cancel();
  pending_.erase(connection);
  if (closing_) co_return;
  if (why.empty()) {
    adopt(hello.rank, connection);
  } else {
    connection->close();
    warn(fmt::format("control plane: dropped a connection from {}: {}", connection->peer(), why));
  }
}

std::string Heartbeats::refusal(const Hello& hello) const {
  // The token first: who does not know it learns nothing else.
  if (!same_job_token(hello.token, token_)) return "its token is not this job's";
  if (hello.ranks != options_.ranks) return fmt::format("its job has {} ranks, not {}", hello.ranks, options_.ranks);
  if (hello.rank == 0 || peers_.contains(hello.rank)) return fmt::format("rank {} is here already", hello.rank);
  return "";
}

asio::awaitable<void> Heartbeats::connect(tcp::endpoint hub) {
  while (!closing_) {
    tcp::socket socket(context_);
    error_code error;
    co_await socket.async_connect(hub, asio::redirect_error(asio::use_awaitable, error));
    if (closing_) break;
    std::string trouble = error.message();
    if (!error) {
      const auto connection = std::make_shared<Connection>(std::move(socket));
      connection->send(encode_hello({token_, options_.rank, options_.ranks}));
      meet(0, connection);
      if (!co_await converse(0, connection)) break;
      peers_.erase(0);
      trouble = "it closes connections unheard";
    }
    milestones_.update([&](Progress& progress) { progress.trouble = trouble; });
    co_await pause(context_, kRetrySeconds);
  }
}

void Heartbeats::meet(int rank, const std::shared_ptr<Connection>& connection) {
  peers_[rank] = connection;
  silence_.heard(rank, steady_seconds());
}

void Heartbeats::adopt(int rank, const std::shared_ptr<Connection>& connection) {
  meet(rank, connection);
  connection->send(encode_frame(FrameKind::beat));  // so that it knows that it was taken in
  asio::co_spawn(context_, converse(rank, connection), asio::detached);
  bool begun = false;
  milestones_.update([&](Progress& progress) {
    progress.absent.erase(rank);
    progress.begun = begun = progress.absent.empty();
  });
  if (!begun) return;
  send_all(encode_frame(FrameKind::begin));
  // Nobody else is expected: from here on no further connection finds an open port.
  error_code ignored;
  acceptor_.close(ignored);
}

asio::awaitable<bool> Heartbeats::converse(int rank, std::shared_ptr<Connection> connection) {
  std::string how =
      "its connection closed before its work was done; expected it to stay; its process has ended or was "
      "killed";
  bool turned_away = false;
  try {
    while (!closing_) {
      const Frame frame = co_await connection->read();
      if (!std::exchange(answered_, true)) milestones_.update([](Progress& progress) { progress.trouble.clear(); });
      silence_.heard(rank, steady_seconds());
      take(rank, frame);
    }
  } catch (const FrameError& error) {
    how = fmt::format("sent what is no frame of the control plane: {}", error.what());
  } catch (const boost::system::system_error&) {
    turned_away = !is_hub() && !answered_ && !over();
  }
  connection->close();
  silence_.forget(rank);
  if (!turned_away) lose(rank, how);
  co_return turned_away;
}

void Heartbeats::take(int rank, const Frame& frame) {
  switch (frame.kind) {
    case FrameKind::beat:
      return;
    case FrameKind::failure:
      return keep_failure(decode_failure(frame.payload, options_.ranks), events_.on_abort);
    case FrameKind::begin:
      if (is_hub()) throw FrameError("a begin from another rank than 0");
      return milestones_.update([](Progress& progress) { progress.begun = true; });
    case FrameKind::done:
      if (!is_hub()) throw FrameError("a done to another rank than 0");
      return done(rank);
    case FrameKind::end:
      if (is_hub()) throw FrameError("an end from another rank than 0");
      return end();
    case FrameKind::ask:
      if (!is_hub()) throw FrameError("a question to another rank than 0");
      return answer(rank);
    case FrameKind::late: {
      if (is_hub()) throw FrameError("an answer to rank 0");
      const std::set<int> late = decode_ranks(frame.payload, options_.ranks);
      return milestones_.update([&](Progress& progress) { progress.working = late; });
    }
    case FrameKind::left:
      if (is_hub()) throw FrameError("news of other ranks to rank 0");
      return events_.on_left(decode_ranks(frame.payload, options_.ranks));
    case FrameKind::stop:
      return hear_stop();
    case FrameKind::hello:
      throw FrameError("a second hello");
  }
}

void Heartbeats::tell(const JobFailure& failure) {
  keep_failure(failure, [](const JobFailure&) {});
}

// The first failure stands, and rank 0 hands it on to all. The event comes before the milestone: who is woken by that
// one, and fails with this cause, finds it known as another rank's.
void Heartbeats::keep_failure(const JobFailure& failure, const std::function<void(const JobFailure&)>& event) {
  if (over()) return;
  failed_ = true;
  send_all(encode_failure(failure));
  event(failure);
  milestones_.update([&](Progress& progress) { progress.failure = failure; });
}

void Heartbeats::lose(int rank, const std::string& how) {
  const JobFailure failure{rank, PeerError::kExitCode, options_.describe_rank(rank) + ": " + how};
  keep_failure(failure, events_.on_lost);
}

void Heartbeats::finish() {
  if (over()) return;
  if (is_hub())
    done(0);
  else if (!peers_.empty())
    peers_.begin()->second->send(encode_frame(FrameKind::done));
}

void Heartbeats::ask() {
  if (!over() && !peers_.empty()) peers_.begin()->second->send(encode_frame(FrameKind::ask));
}

void Heartbeats::answer(int rank) {
  std::set<int> late;
  milestones_.update([&](const Progress& progress) { late = progress.working; });
  if (!late.empty()) peers_.at(rank)->send(encode_ranks(FrameKind::late, late));
}

void Heartbeats::done(int rank) {
  bool all = false;
  milestones_.update([&](Progress& progress) {
    progress.working.erase(rank);
    all = progress.working.empty();
  });
  left_.insert(rank);
  if (!all || over()) return;
  send_all(encode_frame(FrameKind::end));
  end();
}

// Where the others end within a heartbeat too, as they should, there is nothing to tell.
void Heartbeats::tell_left() {
  if (left_.empty() || over()) return;
  std::set<int> told;
  while (!left_.empty() && told.size() < kMostPayload / 4) told.insert(left_.extract(left_.begin()));
  send_all(encode_ranks(FrameKind::left, told));
  events_.on_left(told);
}

// Once all ranks are there to hear it.
void Heartbeats::tell_stop() {
  if (stops_ || over() || !options_.wants_stop()) return;
  milestones_.update([this](const Progress& progress) { stops_ = progress.begun; });
  if (!stops_) return;
  send_all(encode_frame(FrameKind::stop));
}

// Rank 0 hands it on, to the rank that told it too, which knows.
void Heartbeats::hear_stop() {
  if (std::exchange(stops_, true)) return;
  events_.on_stop();
  if (is_hub()) send_all(encode_frame(FrameKind::stop));
}

void Heartbeats::end() {
  ended_ = true;
  for (const auto& [rank, connection] : peers_) connection->close_when_sent();
  timer_.cancel();
  milestones_.update([](Progress& progress) { progress.ended = true; });
}

void Heartbeats::close() {
  closing_ = true;
  error_code ignored;
  acceptor_.close(ignored);
  timer_.cancel();
  for (const auto& connection : pending_) connection->close();
  for (const auto& [rank, connection] : peers_) connection->close_when_sent();
}

asio::awaitable<void> Heartbeats::pulse() {
  while (!closing_ && !ended_) {
    const double now = steady_seconds();
    if (now >= next_beat_) {
      next_beat_ = now + options_.heartbeat_seconds;
      tell_left();
      tell_stop();
      for (const auto& [rank, connection] : peers_)
        if (!connection->sending()) connection->send(encode_frame(FrameKind::beat));
    }
    if (const auto silent = silence_.look(now))
      lose(silent->peer, fmt::format("no sign of life for {:.1f} s; expected one at least every {} s "
                                     "(comm.lost_after_seconds); see whether it is stopped or its host is unreachable",
                                     silent->seconds, options_.lost_after_seconds));
    timer_.expires_after(seconds(std::min(next_beat_, silence_.next_look()) - now));
    error_code cancelled;
    co_await timer_.async_wait(asio::redirect_error(asio::use_awaitable, cancelled));
  }
}

void Heartbeats::warn(const std::string& line) {
  if (++warnings_ <= kMostWarnings) options_.warn(line);
  if (warnings_ == kMostWarnings) options_.warn("control plane: further such connections are dropped silently");
}

void Heartbeats::send_all(const std::string& frame) {
  for (const auto& [rank, connection] : peers_) connection->send(frame);
}

}  // namespace gantry::control
