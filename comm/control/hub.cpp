#include "gantry/comm/control/hub.h"

#include <fmt/format.h>

#include "gantry/comm/control/timers.h"
#include "gantry/core/error.h"

namespace gantry::control {

Hub::Hub(asio::io_context& context, HubOptions options, HubEvents events)
    : context_(context),
      options_(std::move(options)),
      events_(std::move(events)),
      pulse_(context,
             {.heartbeat = options_.heartbeat_seconds > 0 ? options_.heartbeat_seconds : kHubLookSeconds,
              .lost_after = options_.lost_after_seconds,
              .beat = [this] { beat(); },
              .lost = [this](int rank,
                             double silent) { lose(rank, silence_text(silent, options_.lost_after_seconds)); }}) {
  start_again();
}

// Programs of one launch may be jobs one after the other.
void Hub::start_again() {
  peers_.clear();
  left_.clear();
  shared_.clear();
  stops_ = false;
  for (int rank = 0; rank < options_.ranks; ++rank) {
    absent_.insert(rank);
    working_.insert(rank);
  }
}

std::string Hub::refusal(const Hello& hello) const {
  return peers_.contains(hello.rank) ? fmt::format("rank {} is already connected", hello.rank) : "";
}

void Hub::welcome(int rank, const std::shared_ptr<Connection>& connection) {
  peers_[rank] = connection;
  pulse_.heard(rank);
  connection->send(encode_frame(FrameKind::beat));  // so that it knows that it was taken in
  if (failure_) connection->send(encode_failure(*failure_));
  asio::co_spawn(context_, converse(rank, connection), asio::detached);
  if (absent_.erase(rank) == 0 || !absent_.empty()) return;
  send_all(encode_frame(FrameKind::begin));
  events_.on_begun();
}

asio::awaitable<void> Hub::converse(int rank, std::shared_ptr<Connection> connection) {
  std::string how = kClosedText;
  try {
    while (!closing_) {
      const Frame frame = co_await connection->read();
      pulse_.heard(rank);
      take(rank, frame);
    }
  } catch (const FrameError& error) {
    how = unreadable_text(error);
  } catch (const boost::system::system_error&) {
    // It has closed.
  }
  connection->close();
  const auto peer = peers_.find(rank);
  if (closing_ || peer == peers_.end() || peer->second != connection) co_return;  // its job is over
  pulse_.forget(rank);
  peers_.erase(peer);
  lose(rank, how);
}

void Hub::take(int rank, const Frame& frame) {
  switch (frame.kind) {
    case FrameKind::beat:
      return;
    case FrameKind::failure:
      return fail(decode_failure(frame.payload, options_.ranks));
    case FrameKind::done:
      return done(rank);
    case FrameKind::ask:
      return answer(rank);
    case FrameKind::stop:
      return tell_stop();
    case FrameKind::share:
      return share(rank, frame.payload);
    default:
      throw FrameError(fmt::format("frame kind {} from a rank", static_cast<int>(frame.kind)));
  }
}

void Hub::lose(int rank, const std::string& how) {
  if (closing_ || failure_) return;
  events_.on_lost({rank, PeerError::kExitCode, options_.describe_rank(rank) + ": " + how});
}

void Hub::fail(const JobFailure& failure) {
  if (closing_ || failure_) return;
  failure_ = failure;
  send_all(encode_failure(failure));
}

void Hub::beat() {
  tell_left();
  if (!watches()) return;
  for (const auto& [rank, connection] : peers_)
    if (!connection->sending()) connection->send(encode_frame(FrameKind::beat));
}

void Hub::done(int rank) {
  working_.erase(rank);
  left_.insert(rank);
  if (!working_.empty() || failure_) return;
  send_all(encode_frame(FrameKind::end));
  for (const auto& [other, connection] : peers_) {
    pulse_.forget(other);
    connection->close_when_sent();
  }
  start_again();
}

void Hub::answer(int rank) {
  const std::set<int> who = late();
  if (!who.empty()) peers_.at(rank)->send(encode_ranks(FrameKind::late, who));
}

// The ranks that the others wait for: they have not connected, not shared their text, or not finished.
std::set<int> Hub::late() const {
  if (!absent_.empty()) return absent_;
  std::set<int> who = working_;
  for (const auto& [rank, frame] : shared_) who.erase(rank);
  return who;
}

void Hub::share(int rank, std::string_view payload) {
  const auto [of, bytes] = decode_share(payload, options_.ranks);
  if (of != rank) throw FrameError("a share of another rank");
  shared_[rank] = encode_share(rank, bytes);
  if (shared_.size() < static_cast<std::size_t>(options_.ranks)) return;
  std::string all;
  for (const auto& [each, frame] : shared_) all += frame;
  shared_.clear();
  send_all(all);
}

// Where the others end within a heartbeat too, as they should, there is nothing to tell.
void Hub::tell_left() {
  if (left_.empty() || failure_) return;
  std::set<int> notified;
  while (!left_.empty() && notified.size() < kMostPayload / 4) notified.insert(left_.extract(left_.begin()));
  send_all(encode_ranks(FrameKind::left, notified));
}

// The rank that reported it receives it too, and ignores it.
void Hub::tell_stop() {
  if (std::exchange(stops_, true)) return;
  send_all(encode_frame(FrameKind::stop));
}

void Hub::close() {
  closing_ = true;
  pulse_.stop();
  for (const auto& [rank, connection] : peers_) connection->close_when_sent();
}

void Hub::send_all(const std::string& frame) {
  for (const auto& [rank, connection] : peers_) connection->send(frame);
}

}  // namespace gantry::control
