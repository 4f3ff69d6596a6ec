#include "gantry/comm/tcp/tcp_transport.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <sys/epoll.h>
#include <unistd.h>

#include "gantry/comm/tcp/join_ranks.h"
#include "gantry/comm/tcp/peer_link.h"
#include "gantry/core/error.h"

namespace gantry {
namespace {

struct TcpChannel final : Transport::Channel {
  TcpChannel(std::vector<int> members, std::uint64_t its_number) : ranks(std::move(members)), number(its_number) {}
  const std::vector<int> ranks;
  const std::uint64_t number;
};

const TcpChannel& tcp_channel(const Transport::Channel& channel) { return static_cast<const TcpChannel&>(channel); }

// An epoll instance.
class Watch {
 public:
  Watch() : descriptor_(::epoll_create1(EPOLL_CLOEXEC)) {
    if (descriptor_ < 0) refuse();
  }
  ~Watch() { ::close(descriptor_); }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  int get() const { return descriptor_; }
  void add(PeerLink& link) {
    epoll_event event{.events = EPOLLIN, .data = {.ptr = &link}};
    if (::epoll_ctl(descriptor_, EPOLL_CTL_ADD, link.descriptor(), &event) != 0) refuse();
  }

 private:
  [[noreturn]] static void refuse() {
    throw ResourceError({"comm.backend: tcp", std::string("epoll failed: ") + std::strerror(errno), "",
                         "raise the limit of open files (ulimit -n)"});
  }

  const int descriptor_;
};

class TcpTransport final : public Transport {
 public:
  explicit TcpTransport(const TcpOptions& options);

  const char* name() const override { return "tcp"; }
  int rank() const override { return options_.rank; }
  int size() const override { return options_.size; }
  int largest_tag() const override { return std::numeric_limits<int>::max(); }

  std::vector<std::string> gather(const std::string& mine, const std::string& waited) override {
    return options_.gather(mine, waited);
  }
  std::unique_ptr<Channel> open_channel(const std::vector<int>& ranks, std::uint64_t number,
                                        const std::string&) override {
    return std::make_unique<TcpChannel>(ranks, number);
  }
  void send(Channel& channel, int peer, int tag, const void* data, std::int64_t bytes, int request) override {
    PeerLink& link = link_to(channel, peer);
    link.send(tcp_channel(channel).number, tag, static_cast<const char*>(data), bytes, request);
    watch(link);
  }
  void receive(Channel& channel, int peer, int tag, void* data, std::int64_t bytes, int request) override {
    PeerLink& link = link_to(channel, peer);
    link.receive(tcp_channel(channel).number, tag, static_cast<char*>(data), bytes, request);
    watch(link);
  }
  void test_some(std::vector<Completion>& done) override;
  std::vector<int> lost_ranks() const override {
    std::vector<int> ranks;
    for (std::size_t rank = 0; rank < links_.size(); ++rank)
      if (links_[rank]->is_broken()) ranks.push_back(static_cast<int>(rank));
    return ranks;
  }
  bool probe(Channel& channel, int peer, int tag) override {
    return link_to(channel, peer).has_arrived(tcp_channel(channel).number, tag);
  }
  bool abandon() override {
    broken_.clear();
    links_.clear();  // the kernel removes their sockets from the epoll instance
    return true;
  }

 private:
  PeerLink& link_to(const Channel& channel, int peer) {
    return *links_[static_cast<std::size_t>(tcp_channel(channel).ranks[static_cast<std::size_t>(peer)])];
  }
  // Makes the kernel report when the link's socket accepts more data, if the link has data to send.
  void watch(const PeerLink& link);

  const TcpOptions options_;
  Watch watch_;
  std::vector<Completion> done_;
  std::vector<std::unique_ptr<PeerLink>> links_;  // by rank
  std::vector<bool> watched_;                     // by descriptor: EPOLLOUT is set
  std::vector<PeerLink*> broken_;
  std::vector<char> block_ = std::vector<char>(256 << 10);
};

TcpTransport::TcpTransport(const TcpOptions& options) : options_(options) {
  done_.reserve(1024);
  int rank = 0;
  for (const int socket : join_ranks(options_))  // the links own the sockets from here on
    links_.push_back(std::make_unique<PeerLink>(socket, options_.describe_rank(rank++), done_));
  for (const auto& link : links_) {
    if (link->descriptor() < 0) continue;
    watch_.add(*link);
    watched_.resize(std::max(watched_.size(), static_cast<std::size_t>(link->descriptor()) + 1));
  }
}

void TcpTransport::watch(const PeerLink& link) {
  if (link.descriptor() < 0) return;
  const auto place = static_cast<std::size_t>(link.descriptor());
  if (link.wants_to_write() == watched_[place]) return;
  watched_[place] = link.wants_to_write();
  epoll_event event{.events = static_cast<std::uint32_t>(watched_[place] ? EPOLLIN | EPOLLOUT : EPOLLIN),
                    .data = {.ptr = const_cast<PeerLink*>(&link)}};
  ::epoll_ctl(watch_.get(), EPOLL_CTL_MOD, link.descriptor(), &event);
}

void TcpTransport::test_some(std::vector<Completion>& done) {
  constexpr int kMostEvents = 64;
  epoll_event events[kMostEvents];
  const int found = ::epoll_wait(watch_.get(), events, kMostEvents, 0);
  for (int i = 0; i < found; ++i) {
    PeerLink& link = *static_cast<PeerLink*>(events[i].data.ptr);
    link.read(block_);
    link.write();
    watch(link);
    if (!link.is_broken()) continue;
    ::epoll_ctl(watch_.get(), EPOLL_CTL_DEL, link.descriptor(), nullptr);
    broken_.push_back(&link);
  }
  for (PeerLink* link : broken_) link->fail_late();
  done.insert(done.end(), std::make_move_iterator(done_.begin()), std::make_move_iterator(done_.end()));
  done_.clear();
}

}  // namespace

std::unique_ptr<Transport> make_tcp_transport(const TcpOptions& options) {
  return std::make_unique<TcpTransport>(options);
}

}  // namespace gantry
