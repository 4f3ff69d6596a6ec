#include "gantry/comm/tcp/peer_link.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>
#include <utility>

#include "gantry/comm/control/timers.h"

namespace gantry {
namespace {

// Maximum number of bytes that one call reads before other peers are handled.
constexpr std::int64_t kMostAtOnce = std::int64_t{4} << 20;

bool is_for_later(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

}  // namespace

PeerLink::PeerLink(int descriptor, std::string peer, Completions& done)
    : descriptor_(descriptor), peer_(std::move(peer)), done_(done) {
  constexpr std::size_t kUsual = 128;  // usual number in flight; above it, vectors grow
  posted_.reserve(kUsual);
  arrived_.reserve(kUsual);
  offered_.reserve(kUsual);
  awaited_.reserve(kUsual);
  outgoing_.reserve(kUsual);
}

PeerLink::~PeerLink() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void PeerLink::complete(int request, std::int64_t bytes) {
  if (request >= 0) done_.push_back({request, bytes, false, {}});
}

void PeerLink::send(std::uint64_t channel, int tag, const char* data, std::int64_t bytes, int request) {
  LinkFrame frame{LinkFrame::kShort, tag, channel, bytes, 0};
  const bool is_short = bytes <= LinkFrame::kMostShort;
  if (descriptor_ < 0) {
    Arrived arrived{frame, {}, data, request};
    if (is_short) {
      arrived.copy = BufferPool::instance().take(static_cast<std::size_t>(bytes));
      if (bytes > 0) std::memcpy(arrived.copy.get(), data, static_cast<std::size_t>(bytes));
      complete(std::exchange(arrived.own_request, -1), bytes);
    }
    return deliver(std::move(arrived));
  }
  if (is_short) return queue({frame, data, bytes, request});
  frame.kind = LinkFrame::kOffer;
  frame.number = offers_++;
  offered_.push_back({frame.number, const_cast<char*>(data), bytes, request});
  queue({frame});
}

void PeerLink::receive(std::uint64_t channel, int tag, char* data, std::int64_t bytes, int request) {
  const Posted posted{channel, tag, data, bytes, request};
  const auto arrived = std::find_if(arrived_.begin(), arrived_.end(), [&](const Arrived& one) {
    return one.frame.channel == channel && one.frame.tag == tag;
  });
  if (arrived == arrived_.end()) return posted_.push_back(posted);
  Arrived first = std::move(*arrived);
  arrived_.erase(arrived);
  hand_over(posted, first);
}

bool PeerLink::has_arrived(std::uint64_t channel, int tag) const {
  return std::any_of(arrived_.begin(), arrived_.end(),
                     [&](const Arrived& one) { return one.frame.channel == channel && one.frame.tag == tag; });
}

std::vector<PeerLink::Posted>::iterator PeerLink::find_posted(const LinkFrame& frame) {
  return std::find_if(posted_.begin(), posted_.end(),
                      [&](const Posted& one) { return one.channel == frame.channel && one.tag == frame.tag; });
}

void PeerLink::deliver(Arrived arrived) {
  const auto place = find_posted(arrived.frame);
  if (place == posted_.end()) return arrived_.push_back(std::move(arrived));
  const Posted posted = *place;
  posted_.erase(place);
  hand_over(posted, arrived);
}

void PeerLink::hand_over(const Posted& posted, Arrived& arrived) {
  const std::int64_t bytes = arrived.frame.bytes;
  if (bytes > posted.bytes) return done_.push_back({posted.request, bytes, true, {}});
  if (arrived.frame.kind == LinkFrame::kOffer) {
    awaited_.push_back({arrived.frame.number, posted.data, bytes, posted.request});
    LinkFrame take = arrived.frame;
    take.kind = LinkFrame::kTake;
    return queue({take});
  }
  const char* const data = arrived.copy.get() ? static_cast<const char*>(arrived.copy.get()) : arrived.own;
  if (bytes > 0) std::memcpy(posted.data, data, static_cast<std::size_t>(bytes));
  complete(posted.request, bytes);
  complete(arrived.own_request, bytes);
}

void PeerLink::queue(const Outgoing& outgoing) {
  const bool idle = sent_ == outgoing_.size();
  if (sent_ > 0 && outgoing_.size() == outgoing_.capacity()) {  // makes space without an allocation
    outgoing_.erase(outgoing_.begin(), outgoing_.begin() + static_cast<std::ptrdiff_t>(sent_));
    sent_ = 0;
  }
  outgoing_.push_back(outgoing);
  if (idle) write();
}

void PeerLink::write() {
  constexpr auto kHead = static_cast<std::int64_t>(sizeof(LinkFrame));
  while (wants_to_write()) {
    Outgoing& first = outgoing_[sent_];
    const std::int64_t of_head = std::min(sent_bytes_, kHead), of_data = sent_bytes_ - of_head;
    iovec parts[2] = {{reinterpret_cast<char*>(&first.frame) + of_head, static_cast<std::size_t>(kHead - of_head)},
                      {const_cast<char*>(first.data) + of_data, static_cast<std::size_t>(first.bytes - of_data)}};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = first.bytes > 0 ? 2 : 1;
    const ssize_t sent = ::sendmsg(descriptor_, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && is_for_later(errno)) return;
    if (sent < 0) return break_off(std::strerror(errno));
    sent_bytes_ += sent;
    if (sent_bytes_ < kHead + first.bytes) continue;
    complete(first.request, first.bytes);
    sent_bytes_ = 0;
    if (++sent_ < outgoing_.size()) continue;
    outgoing_.clear();
    sent_ = 0;
  }
}

void PeerLink::read(std::vector<char>& block) {
  std::int64_t total = 0;
  while (!is_broken() && total < kMostAtOnce) {
    const bool direct = left_ >= static_cast<std::int64_t>(block.size());
    char* const to = direct ? target_ : block.data();
    const std::size_t room = direct ? static_cast<std::size_t>(left_) : block.size();
    const ssize_t got = ::recv(descriptor_, to, room, MSG_DONTWAIT);
    if (got < 0 && is_for_later(errno)) return;
    if (got < 0) return break_off(std::strerror(errno));
    if (got == 0) return break_off("it was closed");
    total += got;
    if (direct)
      advance_payload(got);
    else
      consume(block.data(), static_cast<std::size_t>(got));
    if (static_cast<std::size_t>(got) < room) return;  // no more data were available
  }
}

void PeerLink::consume(const char* bytes, std::size_t count) {
  while (count > 0 && !is_broken()) {
    std::size_t now = 0;
    if (left_ > 0) {
      now = std::min(count, static_cast<std::size_t>(left_));
      std::memcpy(target_, bytes, now);
      advance_payload(static_cast<std::int64_t>(now));
    } else {
      now = std::min(count, sizeof(LinkFrame) - frame_bytes_);
      std::memcpy(reinterpret_cast<char*>(&frame_) + frame_bytes_, bytes, now);
      frame_bytes_ += now;
      if (frame_bytes_ == sizeof(LinkFrame)) begin_frame();
    }
    bytes += now;
    count -= now;
  }
}

void PeerLink::advance_payload(std::int64_t bytes) {
  target_ += bytes;
  left_ -= bytes;
  if (left_ == 0) end_payload();
}

void PeerLink::begin_frame() {
  frame_bytes_ = 0;
  const std::int64_t most = frame_.kind == LinkFrame::kShort ? LinkFrame::kMostShort : LinkFrame::kMostBytes;
  if (frame_.bytes < 0 || frame_.bytes > most) return break_off("it sent an invalid frame");
  switch (frame_.kind) {
    case LinkFrame::kShort:
      return begin_short();
    case LinkFrame::kOffer:
      return deliver({frame_, {}, nullptr, -1});
    case LinkFrame::kTake:
      return take_offer();
    case LinkFrame::kBytes:
      return begin_bytes();
    default:
      return break_off("it sent an invalid frame");
  }
}

void PeerLink::begin_short() {
  const auto place = find_posted(frame_);
  if (place != posted_.end() && frame_.bytes <= place->bytes) {
    target_ = place->data;
    receiving_ = place->request;
    posted_.erase(place);
  } else {
    kept_ = BufferPool::instance().take(static_cast<std::size_t>(frame_.bytes));
    target_ = static_cast<char*>(kept_.get());
  }
  left_ = frame_.bytes;
  if (left_ == 0) end_payload();
}

void PeerLink::end_payload() {
  if (receiving_ >= 0) return complete(std::exchange(receiving_, -1), frame_.bytes);
  deliver({frame_, std::move(kept_), nullptr, -1});
}

void PeerLink::take_offer() {
  const auto offer =
      std::find_if(offered_.begin(), offered_.end(), [&](const Numbered& one) { return one.number == frame_.number; });
  if (offer == offered_.end()) return break_off("it asked for a message that was not offered");
  LinkFrame bytes = frame_;
  bytes.kind = LinkFrame::kBytes;
  const Outgoing outgoing{bytes, offer->data, offer->bytes, offer->request};
  offered_.erase(offer);
  queue(outgoing);
}

void PeerLink::begin_bytes() {
  const auto place =
      std::find_if(awaited_.begin(), awaited_.end(), [&](const Numbered& one) { return one.number == frame_.number; });
  if (place == awaited_.end() || place->bytes != frame_.bytes)
    return break_off("it sent a message that was not asked for");
  target_ = place->data;
  left_ = place->bytes;
  receiving_ = place->request;
  awaited_.erase(place);
}

void PeerLink::break_off(const std::string& trouble) {
  trouble_ = fmt::format("the connection to {} broke: {}", peer_, trouble);
  broken_at_ = std::chrono::steady_clock::now();
  ::shutdown(descriptor_, SHUT_RDWR);
}

void PeerLink::fail_late() {
  const auto patience = std::chrono::duration<double>(control::kBrokenSeconds);
  if (std::chrono::steady_clock::now() - broken_at_ < patience) return;
  const auto fail = [this](int request) {
    if (request >= 0) done_.push_back({request, 0, false, trouble_});
  };
  fail(std::exchange(receiving_, -1));
  for (const Posted& one : posted_) fail(one.request);
  for (const Numbered& one : offered_) fail(one.request);
  for (const Numbered& one : awaited_) fail(one.request);
  for (; sent_ < outgoing_.size(); ++sent_) fail(outgoing_[sent_].request);
  posted_.clear();
  offered_.clear();
  awaited_.clear();
}

}  // namespace gantry
