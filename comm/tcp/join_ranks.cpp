#include "gantry/comm/tcp/join_ranks.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fmt/format.h>
#include <list>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gantry/comm/control/timers.h"
#include "gantry/core/error.h"

namespace gantry {
namespace {

using Clock = std::chrono::steady_clock;

// The first bytes of each side: who knows the token belongs to the job.
struct Greeting {
  JobToken token{};
  std::int32_t from = 0, to = 0;
};

struct RankAddress {
  char address[64] = "";
  std::int32_t port = 0;

  std::string text() const { return fmt::format("{}:{}", address, port); }
};

class Socket {
 public:
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  ~Socket() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int get() const { return descriptor_; }
  int release() { return std::exchange(descriptor_, -1); }

 private:
  int descriptor_;
};

[[noreturn]] void refuse_socket(const std::string& call) {
  const int error = errno;
  throw ResourceError({"comm.backend: tcp", call + " failed: " + std::strerror(error), "",
                       error == EMFILE || error == ENFILE ? "raise the limit of open files (ulimit -n)" : ""});
}

int open_socket(int family) {
  const int descriptor = ::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (descriptor < 0) refuse_socket("socket");
  return descriptor;
}

// A numeric address and a port.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  SocketAddress(const std::string& address, int port) {
    auto* v4 = reinterpret_cast<sockaddr_in*>(&storage);
    auto* v6 = reinterpret_cast<sockaddr_in6*>(&storage);
    if (::inet_pton(AF_INET, address.c_str(), &v4->sin_addr) == 1) {
      v4->sin_family = AF_INET;
      v4->sin_port = htons(static_cast<std::uint16_t>(port));
      length = sizeof(sockaddr_in);
    } else {
      ::inet_pton(AF_INET6, address.c_str(), &v6->sin6_addr);
      v6->sin6_family = AF_INET6;
      v6->sin6_port = htons(static_cast<std::uint16_t>(port));
      length = sizeof(sockaddr_in6);
    }
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  int port() const {  // at the same place in both
    return ntohs(reinterpret_cast<const sockaddr_in*>(&storage)->sin_port);
  }
};

// A connection whose greetings are not complete.
struct Attempt {
  Attempt(int descriptor, int to) : socket(descriptor), peer(to) {}

  Socket socket;
  int peer = -1;  // -1: that is still to be heard
  Greeting mine, theirs;
  std::size_t sent = 0, received = 0;
  Clock::time_point begun = Clock::now();

  bool is_complete() const { return sent == sizeof(Greeting) && received == sizeof(Greeting); }
};

class RankJoin {
 public:
  explicit RankJoin(const TcpOptions& options)
      : options_(options),
        sockets_(static_cast<std::size_t>(options.size), -1),
        listener_(open_socket(SocketAddress(options.address, 0).storage.ss_family)) {}
  ~RankJoin() {
    for (const int one : sockets_)
      if (one >= 0) ::close(one);
  }

  std::vector<int> run();

 private:
  RankAddress listen();
  void go_to(int peer);
  void accept_all();
  void wait();
  void move(Attempt& attempt);
  void greet(Attempt& attempt);
  void drop(const Attempt& attempt, const std::string& why);
  std::vector<int> missing() const;
  [[noreturn]] void end_late() const;
  bool is_known(const Attempt& attempt) const { return attempt.peer >= 0 && attempt.peer < options_.rank; }

  const TcpOptions& options_;
  std::vector<int> sockets_;
  Socket listener_;
  std::vector<RankAddress> addresses_;
  std::list<Attempt> attempts_;
};

RankAddress RankJoin::listen() {
  SocketAddress own(options_.address, 0);
  if (::bind(listener_.get(), own.get(), own.length) != 0 || ::listen(listener_.get(), SOMAXCONN) != 0 ||
      ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&own.storage), &own.length) != 0)
    refuse_socket("listening on " + options_.address);
  RankAddress address;
  std::strncpy(address.address, options_.address.c_str(), sizeof(address.address) - 1);
  address.port = own.port();
  return address;
}

std::vector<int> RankJoin::run() {
  const RankAddress mine = listen();
  for (const std::string& bytes : options_.gather({reinterpret_cast<const char*>(&mine), sizeof(mine)}, ""))
    std::memcpy(&addresses_.emplace_back(), bytes.data(), sizeof(RankAddress));
  for (int peer = 0; peer < options_.rank; ++peer) go_to(peer);
  const auto deadline = Clock::now() + std::chrono::duration<double>(options_.timeout_seconds);
  while (!missing().empty()) {
    if (Clock::now() > deadline) end_late();
    wait();
    accept_all();
    for (Attempt& attempt : attempts_) move(attempt);
    attempts_.remove_if([](const Attempt& attempt) { return attempt.socket.get() < 0; });
  }
  return std::exchange(sockets_, {});
}

void RankJoin::go_to(int peer) {
  const RankAddress& address = addresses_[static_cast<std::size_t>(peer)];
  const SocketAddress there(address.address, address.port);
  Attempt& attempt = attempts_.emplace_back(open_socket(there.storage.ss_family), peer);
  attempt.mine = {options_.token, options_.rank, peer};
  if (::connect(attempt.socket.get(), there.get(), there.length) != 0 && errno != EINPROGRESS)
    drop(attempt, std::strerror(errno));
}

void RankJoin::accept_all() {
  for (;;) {
    const int descriptor = ::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (descriptor >= 0) {
      attempts_.emplace_back(descriptor, -1);
    } else if (errno == EMFILE || errno == ENFILE) {
      refuse_socket("accept");
    } else if (errno != EINTR && errno != ECONNABORTED) {
      return;
    }
  }
}

// Until something moves, for a short time.
void RankJoin::wait() {
  constexpr int kMilliseconds = 100;
  std::vector<pollfd> watched{{listener_.get(), POLLIN, 0}};
  for (const Attempt& attempt : attempts_) {
    const bool sends = attempt.peer >= 0 && attempt.sent < sizeof(Greeting);
    watched.push_back({attempt.socket.get(), static_cast<short>(sends ? POLLIN | POLLOUT : POLLIN), 0});
  }
  ::poll(watched.data(), watched.size(), kMilliseconds);
}

void RankJoin::move(Attempt& attempt) {
  const auto is_over = [&](ssize_t moved) {
    if (moved > 0 || (moved < 0 && (errno == EAGAIN || errno == EINTR || errno == ENOTCONN))) return false;
    drop(attempt, moved == 0 ? "it was closed" : std::strerror(errno));
    return true;
  };
  if (attempt.peer >= 0 && attempt.sent < sizeof(Greeting)) {
    const ssize_t sent = ::send(attempt.socket.get(), reinterpret_cast<const char*>(&attempt.mine) + attempt.sent,
                                sizeof(Greeting) - attempt.sent, MSG_NOSIGNAL);
    if (is_over(sent)) return;
    attempt.sent += static_cast<std::size_t>(std::max<ssize_t>(0, sent));
  }
  if (attempt.received < sizeof(Greeting)) {
    const ssize_t got = ::recv(attempt.socket.get(), reinterpret_cast<char*>(&attempt.theirs) + attempt.received,
                               sizeof(Greeting) - attempt.received, 0);
    if (is_over(got)) return;
    attempt.received += static_cast<std::size_t>(std::max<ssize_t>(0, got));
    if (attempt.received == sizeof(Greeting)) greet(attempt);
  }
  if (attempt.socket.get() >= 0 && attempt.is_complete()) {
    const int on = 1;
    ::setsockopt(attempt.socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    sockets_[static_cast<std::size_t>(attempt.peer)] = attempt.socket.release();
  } else if (attempt.socket.get() >= 0 && !is_known(attempt) &&
             Clock::now() - attempt.begun > std::chrono::duration<double>(control::kHandshakeSeconds)) {
    drop(attempt, fmt::format("the process did not identify itself within {} s", control::kHandshakeSeconds));
  }
}

// The token first: who does not know it learns nothing else.
void RankJoin::greet(Attempt& attempt) {
  const Greeting& theirs = attempt.theirs;
  if (!same_job_token(theirs.token, options_.token)) return drop(attempt, "its token belongs to another job");
  const bool expected = is_known(attempt) ? theirs.from == attempt.peer
                                          : theirs.from > options_.rank && theirs.from < options_.size &&
                                                sockets_[static_cast<std::size_t>(theirs.from)] < 0;
  if (!expected || theirs.to != options_.rank) return drop(attempt, "it is not the expected rank");
  attempt.peer = theirs.from;
  attempt.mine = {options_.token, options_.rank, theirs.from};
}

// A peer that can't be reached ends the job; whoever else comes here changes nothing.
void RankJoin::drop(const Attempt& attempt, const std::string& why) {
  const std::string me = options_.describe_rank(options_.rank);
  if (is_known(attempt))
    throw PeerError({me,
                     fmt::format("{} cannot be reached at {}: {}", options_.describe_rank(attempt.peer),
                                 addresses_[static_cast<std::size_t>(attempt.peer)].text(), why),
                     "a network that connects the hosts", "name it by --interface, or by comm.interface"});
  std::fprintf(stderr, "warning: %s: dropped a connection: %s\n", me.c_str(), why.c_str());
  ::close(const_cast<Attempt&>(attempt).socket.release());
}

std::vector<int> RankJoin::missing() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < options_.size; ++rank)
    if (rank != options_.rank && sockets_[static_cast<std::size_t>(rank)] < 0) ranks.push_back(rank);
  return ranks;
}

void RankJoin::end_late() const {
  std::string names;
  for (const int rank : missing()) names += (names.empty() ? "" : ", ") + options_.describe_rank(rank);
  throw PeerError({options_.describe_rank(options_.rank),
                   fmt::format("it waited {} s for a connection with {}", options_.timeout_seconds, names),
                   "a network that connects the hosts", "name it by --interface, or by comm.interface"});
}

}  // namespace

std::vector<int> join_ranks(const TcpOptions& options) {
  if (options.size == 1) return {-1};
  return RankJoin(options).run();
}

}  // namespace gantry
