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

// Programs of one launch may be consecutive jobs.
void Hub::start_again() {
  peers_.clear();
  left_.clear();
  shared_.clear();
  membership_.reset();
  reported_ = -1;
  if (ranks_) std::exchange(ranks_, nullptr)->stop();
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
  connection->send(encode_frame(FrameKind::beat));  // confirms to the rank that it was admitted
  if (failure_) connection->send(encode_failure(*failure_));
  spawn(context_, converse(rank, connection));
  if (membership_) return admit(rank);
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
      if (ranks_) ranks_->heard(rank);
      take(rank, frame);
    }
  } catch (const FrameError& error) {
    how = unreadable_text(error);
  } catch (const boost::system::system_error&) {
    // The connection has closed.
  }
  connection->close();
  const auto peer = peers_.find(rank);
  if (closing_ || peer == peers_.end() || peer->second != connection) co_return;  // its job is over
  pulse_.forget(rank);
  if (ranks_) ranks_->forget(rank);
  peers_.erase(peer);
  if (!is_member(rank)) co_return membership_->give_up(rank);
  lose(rank, how);
}

void Hub::take(int rank, const Frame& frame) {
  switch (frame.kind) {
    case FrameKind::beat:
      return;
    case FrameKind::failure:
      if (!is_member(rank)) return;  // the job continues without this rank
      return fail(decode_failure(frame.payload, options_.ranks));
    case FrameKind::done:
      return done(rank);
    case FrameKind::ask:
      return answer(rank);
    case FrameKind::stop:
      return tell_stop();
    case FrameKind::record:
      return request_records(rank);
    case FrameKind::share:
      return share(rank, frame.payload);
    case FrameKind::elastic:
      return become_elastic(decode_policy(frame.payload, options_.ranks));
    case FrameKind::grow:
      return grow();
    case FrameKind::lost:
      return lose_unreachable(rank, frame.payload);
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
  if (membership_) events_.on_over(membership_->ranks());
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
  const Share share = decode_share(payload, options_.ranks);
  if (share.rank != rank) throw FrameError("a share of another rank");
  if (membership_ && (share.generation != membership_->generation() || !membership_->ranks().contains(rank))) return;
  working_.insert(rank);  // a `done` that it sent before belongs to the last generation
  left_.erase(rank);
  shared_[rank] = encode_share(share);
  if (shared_.size() < (membership_ ? membership_->ranks().size() : static_cast<std::size_t>(options_.ranks))) return;
  std::string all;
  for (const auto& [each, frame] : shared_) all += frame;
  shared_.clear();
  send_all(all);
}

void Hub::become_elastic(const ElasticPolicy& policy) {
  if (membership_) return;
  membership_.emplace(policy);
  const double patience = policy.lost_after_seconds();
  watches_.push_back(std::make_unique<Heartbeats>(
      context_,
      Heartbeats::Rules{
          .heartbeat = policy.heartbeat_seconds,
          .lost_after = patience,
          .beat = [] {},
          .lost = [this, patience](int rank, double silent) { lose(rank, silence_text(silent, patience)); }}));
  ranks_ = watches_.back().get();
  for (const auto& [rank, connection] : peers_) ranks_->heard(rank);
  ranks_->start();
}

const Membership* Hub::membership() const {
  const bool all_work = membership_ && !failure_ && working_.size() == membership_->ranks().size();
  return all_work ? &*membership_ : nullptr;
}

bool Hub::lose_replica(int rank) {
  if (!membership() || !membership_->lose(rank)) return false;
  regroup();
  return true;
}

// Admits a rank that was lost and has been started again.
void Hub::admit(int rank) {
  ranks_->heard(rank);
  membership_->wait(rank);
  if (!membership_->can_grow()) return;
  for (const int member : membership_->ranks())
    if (const auto peer = peers_.find(member); peer != peers_.end())
      peer->second->send(encode_frame(FrameKind::waiting));
}

// A generation begins even if the rank that waited has ended since, because the members wait for an answer.
void Hub::grow() {
  if (!membership()) return;
  std::set<int> joined = membership_->ranks();
  membership_->grow();
  std::set<int> now = membership_->ranks();
  std::erase_if(now, [&](int rank) { return joined.contains(rank); });
  regroup();
  events_.on_grown(now);
}

// If two ranks have no connection with each other, the rank that is reported first leaves. Further reports
// are ignored until the next generation.
void Hub::lose_unreachable(int from, std::string_view payload) {
  const auto [generation, rank] = decode_lost(payload, options_.ranks);
  if (!membership() || generation != membership_->generation() || !membership_->ranks().contains(rank)) return;
  if (std::exchange(reported_, generation) == generation) return;
  lose(rank, fmt::format("{} has lost its connection with this rank", options_.describe_rank(from)));
}

void Hub::regroup() {
  shared_.clear();
  left_.clear();
  working_ = membership_->ranks();
  const std::string frame = encode_members(membership_->members());
  for (const int rank : membership_->ranks())
    if (const auto peer = peers_.find(rank); peer != peers_.end()) peer->second->send(frame);
  if (!membership_->can_grow()) return;
  for (const int rank : membership_->ranks())
    if (const auto peer = peers_.find(rank); peer != peers_.end()) peer->second->send(encode_frame(FrameKind::waiting));
}

// Called at each heartbeat. Nothing is sent if all ranks finish within one heartbeat, as they normally do.
void Hub::tell_left() {
  if (left_.empty() || failure_) return;
  std::set<int> notified;
  while (!left_.empty() && notified.size() < kMostPayload / 4) notified.insert(left_.extract(left_.begin()));
  send_all(encode_ranks(FrameKind::left, notified));
}

// The rank that sent the request receives the frame too, and ignores it.
void Hub::tell_stop() {
  if (std::exchange(stops_, true)) return;
  send_all(encode_frame(FrameKind::stop));
}

void Hub::request_records(int from) {
  for (const auto& [rank, connection] : peers_)
    if (rank != from) connection->send(encode_frame(FrameKind::record));
}

void Hub::close() {
  closing_ = true;
  pulse_.stop();
  if (ranks_) ranks_->stop();
  for (const auto& [rank, connection] : peers_) connection->close_when_sent();
}

void Hub::send_all(const std::string& frame) {
  for (const auto& [rank, connection] : peers_) connection->send(frame);
}

}  // namespace gantry::control
