#include "gantry/cli/launch/connection.h"

#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sstream>
#include <sys/socket.h>

#include "gantry/core/error.h"

namespace gantry::cli {
namespace {

constexpr int kConnectMilliseconds = 5000;
constexpr int kSilentSeconds = 5, kProbeSeconds = 2, kProbes = 5;  // 15 s in all
constexpr int kUnconfirmedMilliseconds = 15000;
constexpr int kMostBlocks = 16;  // that one peer sends before others are heard

std::string numeric(const sockaddr* address) {
  std::array<char, NI_MAXHOST> text{};
  const socklen_t size = address->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  const int fault = ::getnameinfo(address, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
  return fault == 0 ? text.data() : "";
}

bool is_usable(const ifaddrs& entry, bool several_hosts, const std::string& interface) {
  if (!entry.ifa_addr || (entry.ifa_flags & IFF_UP) == 0 || entry.ifa_addr->sa_family != AF_INET) return false;
  if (!interface.empty()) return entry.ifa_name == interface || numeric(entry.ifa_addr) == interface;
  return ((entry.ifa_flags & IFF_LOOPBACK) == 0) == several_hosts;
}

// Of the interfaces that are up: loopback alone, or all but loopback, or the one that `interface` names.
std::vector<std::string> own_addresses(bool several_hosts, const std::string& interface) {
  std::vector<std::string> addresses;
  ifaddrs* entries = nullptr;
  if (::getifaddrs(&entries) == 0) {
    for (const ifaddrs* entry = entries; entry; entry = entry->ifa_next)
      if (is_usable(*entry, several_hosts, interface)) addresses.push_back(numeric(entry->ifa_addr));
    ::freeifaddrs(entries);
  }
  if (!addresses.empty()) return addresses;
  if (!interface.empty())
    throw UsageError({"--interface " + interface, "has no IPv4 address on this host, or is down",
                      "an interface's name or address", "`ip address` lists them"});
  return {"127.0.0.1"};
}

void set(int socket, int level, int option, int value) { ::setsockopt(socket, level, option, &value, sizeof(value)); }

Descriptor connect_to(const std::string& address, int port) {
  sockaddr_in there{};
  there.sin_family = AF_INET;
  there.sin_port = htons(static_cast<std::uint16_t>(port));
  if (::inet_pton(AF_INET, address.c_str(), &there.sin_addr) != 1) return {};
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return {};
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&there), sizeof(there)) != 0) {
    pollfd ready{socket.get(), POLLOUT, 0};
    int fault = 0;
    socklen_t size = sizeof(fault);
    if (errno != EINPROGRESS || ::poll(&ready, 1, kConnectMilliseconds) != 1) return {};
    if (::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &fault, &size) != 0 || fault != 0) return {};
  }
  return socket;
}

}  // namespace

std::string encode_rendezvous(const Rendezvous& rendezvous) {
  return fmt::format("{} {} {}", rendezvous.token, rendezvous.port, fmt::join(rendezvous.addresses, " "));
}

std::optional<Rendezvous> decode_rendezvous(const std::string& text) {
  std::istringstream words(text);
  Rendezvous rendezvous;
  if (!(words >> rendezvous.token >> rendezvous.port)) return std::nullopt;
  for (std::string address; words >> address;) rendezvous.addresses.push_back(address);
  if (rendezvous.addresses.empty()) return std::nullopt;
  return rendezvous;
}

Listener listen_for_ranks(bool several_hosts, const std::string& interface, int port) {
  std::vector<std::string> addresses = own_addresses(several_hosts, interface);
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_in here{};
  here.sin_family = AF_INET;
  here.sin_port = htons(static_cast<std::uint16_t>(port));
  here.sin_addr.s_addr = htonl(several_hosts ? INADDR_ANY : INADDR_LOOPBACK);
  if (!interface.empty()) {
    addresses.resize(1);
    ::inet_pton(AF_INET, addresses[0].c_str(), &here.sin_addr);
  }
  socklen_t size = sizeof(here);
  set(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (!socket || ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&here), size) != 0 ||
      ::listen(socket.get(), SOMAXCONN) != 0 ||
      ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&here), &size) != 0)
    throw ResourceError({"launch", fmt::format("can't listen on port {}: {}", port, std::strerror(errno)), "",
                         port == 0 ? "" : "choose another --port"});
  return {std::move(socket), ntohs(here.sin_port), std::move(addresses)};
}

Descriptor connect_to_launch(const Rendezvous& rendezvous) {
  for (const auto& address : rendezvous.addresses)
    if (Descriptor socket = connect_to(address, rendezvous.port)) {
      watch_peer(socket.get(), !address.starts_with("127."));
      return socket;
    }
  return {};
}

void watch_peer(int socket, bool several_hosts) {
  set(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  if (!several_hosts) return;  // no network that could be cut
  set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(socket, IPPROTO_TCP, TCP_KEEPIDLE, kSilentSeconds);
  set(socket, IPPROTO_TCP, TCP_KEEPINTVL, kProbeSeconds);
  set(socket, IPPROTO_TCP, TCP_KEEPCNT, kProbes);
  set(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, kUnconfirmedMilliseconds);
}

void Connection::close() {
  open_ = false;
  socket_.close();
}

void Connection::fail(int error) {
  out_of_reach_ = error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH || error == ENETDOWN;
  close();
}

void Connection::send(const Frame& frame) {
  const std::string bytes = encode(frame);
  for (std::string_view left = bytes; open_ && !left.empty();) {
    const ssize_t sent = ::send(socket_.get(), left.data(), left.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      left.remove_prefix(static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN) {
      pollfd ready{socket_.get(), POLLOUT, 0};
      ::poll(&ready, 1, -1);
    } else if (errno != EINTR) {
      fail(errno);
    }
  }
}

std::vector<Frame> Connection::receive() {
  std::array<char, 65536> block;
  std::vector<Frame> frames;
  for (int blocks = 0; open_ && blocks < kMostBlocks; ++blocks) {
    const ssize_t got = ::recv(socket_.get(), block.data(), block.size(), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) break;
    if (got < 0) fail(errno);
    if (got == 0) close();
    if (got <= 0) break;
    try {
      reader_.add({block.data(), static_cast<std::size_t>(got)});
      while (auto frame = reader_.next()) frames.push_back(std::move(*frame));
    } catch (const PeerError&) {
      close();
    }
    if (static_cast<std::size_t>(got) < block.size()) break;
  }
  return frames;
}

}  // namespace gantry::cli
