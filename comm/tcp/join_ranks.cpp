#include "gantry/comm/tcp/join_ranks.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fmt/format.h>
#include <list>
#include <netinet/tcp.h>
#include <poll.h>

#include "gantry/comm/control/timers.h"
#include "gantry/comm/tcp/sockets.h"
#include "gantry/core/base/warning.h"
#include "gantry/core/error.h"

namespace gantry {
namespace {

using Clock = std::chrono::steady_clock;

// Maximum number of connections without a greeting, in addition to those of the job's own ranks; as in
// control::Reception.
constexpr std::size_t kMostUnknown = 64;
constexpr int kMostWarnings = 20;

// The first bytes in each direction. A process that knows the token belongs to the job.
struct Greeting {
  JobToken token{};
  std::int32_t from = 0, to = 0;
};

struct RankAddress {
  char address[64] = "";
  std::int32_t port = 0;

  std::string text() const { return fmt::format("{}:{}", address, port); }
};

// A connection whose greetings are not complete.
struct Attempt {
  Attempt(int descriptor, int to) : socket(descriptor), peer(to) {}

  Socket socket;
  int peer = -1;  // -1: not known yet
  Greeting mine, theirs;
  std::size_t sent = 0, received = 0;
  Clock::time_point begun = Clock::now();

  bool is_unknown() const { return socket.get() >= 0 && peer < 0; }
  bool is_complete() const { return sent == sizeof(Greeting) && received == sizeof(Greeting); }
};

class RankJoin {
 public:
  explicit RankJoin(const TcpOptions& options)
      : options_(options),
        sockets_(static_cast<std::size_t>(options.size), -1),
        ways_(static_cast<std::size_t>(options.rank)),
        listener_(open_socket(SocketAddress(options.address, 0).storage.ss_family)) {}
  ~RankJoin() {
    for (const int one : sockets_)
      if (one >= 0) ::close(one);
  }

  std::vector<int> run();

 private:
  // The connection attempts to a lower rank.
  struct Way {
    Clock::time_point due;  // time of the next attempt
    std::string trouble;    // why the last attempt failed
  };

  RankAddress listen();
  template <class Open>
  int open(const char* call, const Open& call_it);
  int open_socket(int family);
  void go_to_due();
  void go_to(int peer);
  void accept_all();
  void wait();
  void move(Attempt& attempt);
  void greet(Attempt& attempt);
  void drop(Attempt& attempt, const std::string& why);
  bool drop_oldest_unknown();
  std::vector<int> missing() const;
  [[noreturn]] void end_late() const;
  bool is_known(const Attempt& attempt) const { return attempt.peer >= 0 && attempt.peer < options_.rank; }

  const TcpOptions& options_;
  std::vector<int> sockets_;
  std::vector<RankAddress> addresses_;
  std::list<Attempt> attempts_;
  std::vector<Way> ways_;
  int dropped_ = 0;  // connections of unknown processes
  Socket listener_;
};

RankAddress RankJoin::listen() {
  SocketAddress own(options_.address, 0);
  if (::bind(listener_.get(), own.get(), own.length) != 0 || ::listen(listener_.get(), SOMAXCONN) != 0 ||
      ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&own.storage), &own.length) != 0)
    refuse_socket("listening on " + options_.address, errno);
  RankAddress address;
  std::strncpy(address.address, options_.address.c_str(), sizeof(address.address) - 1);
  address.port = own.port();
  return address;
}

std::vector<int> RankJoin::run() {
  const RankAddress mine = listen();
  for (const std::string& bytes : options_.gather({reinterpret_cast<const char*>(&mine), sizeof(mine)}, ""))
    std::memcpy(&addresses_.emplace_back(), bytes.data(), sizeof(RankAddress));
  const auto deadline = Clock::now() + std::chrono::duration<double>(options_.timeout_seconds);
  for (;;) {
    go_to_due();
    wait();
    accept_all();
    for (Attempt& attempt : attempts_) move(attempt);
    attempts_.remove_if([](const Attempt& attempt) { return attempt.socket.get() < 0; });
    if (missing().empty()) return std::exchange(sockets_, {});
    options_.check();
    if (Clock::now() > deadline) end_late();
  }
}

// Returns a new descriptor. If there are none left, closes the connection of an unknown process to free one.
template <class Open>
int RankJoin::open(const char* call, const Open& call_it) {
  for (;;) {
    const int descriptor = call_it(), error = errno;
    if (descriptor >= 0 || (error != EMFILE && error != ENFILE)) return descriptor;
    if (!drop_oldest_unknown()) refuse_socket(call, error);
  }
}

int RankJoin::open_socket(int family) {
  const int descriptor =
      open("socket", [&] { return ::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); });
  if (descriptor < 0) refuse_socket("socket", errno);
  return descriptor;
}

void RankJoin::go_to_due() {
  for (int peer = 0; peer < options_.rank; ++peer) {
    Way& way = ways_[static_cast<std::size_t>(peer)];
    if (Clock::now() < way.due) continue;
    way.due = Clock::time_point::max();
    go_to(peer);
  }
}

void RankJoin::go_to(int peer) {
  const RankAddress& address = addresses_[static_cast<std::size_t>(peer)];
  const SocketAddress there(address.address, address.port);
  Attempt& attempt = attempts_.emplace_back(open_socket(there.storage.ss_family), peer);
  attempt.mine = {options_.token, options_.rank, peer};
  if (::connect(attempt.socket.get(), there.get(), there.length) != 0 && errno != EINPROGRESS)
    drop(attempt, std::strerror(errno));
}

// Accepts at most kMostUnknown connections before existing ones are handled.
void RankJoin::accept_all() {
  for (std::size_t i = 0; i < kMostUnknown; ++i) {
    const int descriptor =
        open("accept", [&] { return ::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC); });
    if (descriptor >= 0)
      attempts_.emplace_back(descriptor, -1);
    else if (errno != EINTR && errno != ECONNABORTED)
      break;
  }
  const auto unknown = [](const Attempt& attempt) { return attempt.is_unknown(); };
  const std::size_t most = kMostUnknown + sockets_.size();
  while (static_cast<std::size_t>(std::count_if(attempts_.begin(), attempts_.end(), unknown)) > most)
    drop_oldest_unknown();
}

// Keeps a connection whose greeting has arrived. Returns false if no connection was closed.
bool RankJoin::drop_oldest_unknown() {
  const int before = dropped_;
  for (Attempt& attempt : attempts_) {
    if (attempt.is_unknown()) move(attempt);
    if (attempt.is_unknown()) drop(attempt, "too many connections arrived after it");
    if (dropped_ > before) return true;
  }
  return false;
}

// Waits a short time for an event on a socket.
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
  if (attempt.socket.get() < 0) return;
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

// The token is checked first: a peer without it must not learn anything else.
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

// A lower rank is tried again after a pause; connections of other processes do not affect the job.
void RankJoin::drop(Attempt& attempt, const std::string& why) {
  ::close(attempt.socket.release());
  if (is_known(attempt)) {
    const auto pause =
        std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(control::kRetrySeconds));
    ways_[static_cast<std::size_t>(attempt.peer)] = {Clock::now() + pause, why};
    return;
  }
  const std::string me = options_.describe_rank(options_.rank);
  if (++dropped_ <= kMostWarnings) print_warning(me + ": dropped a connection: " + why);
  if (dropped_ == kMostWarnings) print_warning(me + ": further such connections are dropped silently");
}

std::vector<int> RankJoin::missing() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < options_.size; ++rank)
    if (rank != options_.rank && sockets_[static_cast<std::size_t>(rank)] < 0) ranks.push_back(rank);
  return ranks;
}

void RankJoin::end_late() const {
  std::string names;
  for (const int rank : missing()) {
    names += (names.empty() ? "" : ", ") + options_.describe_rank(rank);
    const auto place = static_cast<std::size_t>(rank);
    if (place < ways_.size() && !ways_[place].trouble.empty())
      names += fmt::format(" at {} ({})", addresses_[place].text(), ways_[place].trouble);
  }
  throw PeerError({options_.describe_rank(options_.rank),
                   fmt::format("it waited {} s for a connection with {}", options_.timeout_seconds, names),
                   "a network that connects the hosts",
                   "name it by gantry launch --interface, or under other launchers by comm.interface"});
}

}  // namespace

std::vector<int> join_ranks(const TcpOptions& options) {
  if (options.size == 1) return {-1};
  allow_descriptors(options.size);
  return RankJoin(options).run();
}

}  // namespace gantry
