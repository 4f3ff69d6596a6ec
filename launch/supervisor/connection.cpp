#include "gantry/launch/supervisor/connection.h"

#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sstream>
#include <sys/socket.h>

#include "gantry/core/error.h"
#include "gantry/core/this_host.h"

namespace gantry::launcher {
namespace {

constexpr int kConnectMilliseconds = 5000;
constexpr int kSilentSeconds = 5, kProbeSeconds = 2, kProbes = 5;  // 15 s in all
constexpr int kUnconfirmedMilliseconds = 15000;
constexpr int kMostBlocks = 16;  // that one peer sends before others are heard

// The one that `interface` names, or loopback on one host.
std::string own_address(bool several_hosts, const std::string& interface) {
  if (interface.empty() && !several_hosts) return "127.0.0.1";
  auto all = network_interfaces();
  std::erase_if(all, [](const NetworkInterface& one) { return one.v6; });
  for (const auto& one : all)
    if (one.name == interface || one.address == interface) return one.address;
  if (!interface.empty())
    throw UsageError({"--interface " + interface, "has no IPv4 address on this host, or is down",
                      "one of " + list_interfaces(all), "name another one"});
  std::erase_if(all, [](const NetworkInterface& one) { return one.loopback; });
  throw UsageError({"gantry launch", "several hosts, and --interface is not given: it would listen on every network",
                    all.empty() ? "a network that joins them" : "one of " + list_interfaces(all),
                    "add --interface NAME"});
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
  return fmt::format("{} {} {}", rendezvous.token, rendezvous.port, rendezvous.address);
}

std::optional<Rendezvous> decode_rendezvous(const std::string& text) {
  std::istringstream words(text);
  Rendezvous rendezvous;
  if (!(words >> rendezvous.token >> rendezvous.port >> rendezvous.address)) return std::nullopt;
  return rendezvous;
}

Listener listen_for_ranks(bool several_hosts, const std::string& interface, int port) {
  const std::string address = own_address(several_hosts, interface);
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_in here{};
  here.sin_family = AF_INET;
  here.sin_port = htons(static_cast<std::uint16_t>(port));
  ::inet_pton(AF_INET, address.c_str(), &here.sin_addr);
  socklen_t size = sizeof(here);
  set(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (!socket || ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&here), size) != 0 ||
      ::listen(socket.get(), SOMAXCONN) != 0 ||
      ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&here), &size) != 0)
    throw ResourceError({"launch", fmt::format("can't listen on port {}: {}", port, std::strerror(errno)), "",
                         port == 0 ? "" : "choose another --port"});
  return {std::move(socket), ntohs(here.sin_port), address};
}

Descriptor connect_to_launch(const Rendezvous& rendezvous) {
  Descriptor socket = connect_to(rendezvous.address, rendezvous.port);
  if (socket) watch_peer(socket.get(), !rendezvous.address.starts_with("127."));
  return socket;
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

}  // namespace gantry::launcher
