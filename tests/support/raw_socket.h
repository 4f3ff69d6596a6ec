// A plain TCP connection, to send data that no correct client would send.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

namespace gantry::testing {

class RawSocket {
 public:
  explicit RawSocket(int descriptor) : descriptor_(descriptor) {}
  RawSocket(RawSocket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  ~RawSocket() { close(); }

  static RawSocket connect(int port) {
    const sockaddr_in address = loopback(port);
    const int descriptor = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (::connect(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
      ::close(descriptor);
      return RawSocket(-1);
    }
    return RawSocket(descriptor);
  }

  bool connected() const { return descriptor_ >= 0; }
  bool send(const std::string& bytes) const {
    return ::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
  }
  // Receives until the other end closes, or until nothing arrives for `milliseconds`.
  std::string receive_all(int milliseconds = 10'000) const {
    std::string bytes;
    char block[4096];
    pollfd wait{descriptor_, POLLIN, 0};
    while (::poll(&wait, 1, milliseconds) > 0) {
      const ssize_t n = ::recv(descriptor_, block, sizeof(block), 0);
      if (n <= 0) break;
      bytes.append(block, static_cast<std::size_t>(n));
    }
    return bytes;
  }
  // Receives `count` bytes. Returns fewer if the other end closes or sends nothing for 10 s.
  std::string receive(std::size_t count) const {
    std::string bytes(count, '\0');
    std::size_t got = 0;
    pollfd wait{descriptor_, POLLIN, 0};
    while (got<count&& ::poll(&wait, 1, 10'000)> 0) {
      const ssize_t n = ::recv(descriptor_, bytes.data() + got, count - got, 0);
      if (n <= 0) break;
      got += static_cast<std::size_t>(n);
    }
    bytes.resize(got);
    return bytes;
  }
  // Returns true once the other end closes, and false if it sends nothing for `milliseconds`. Drops received
  // data.
  bool closes(int milliseconds = 10'000) const {
    char block[4096];
    pollfd wait{descriptor_, POLLIN, 0};
    while (::poll(&wait, 1, milliseconds) > 0)
      if (::recv(descriptor_, block, sizeof(block), 0) <= 0) return true;
    return false;
  }
  void close() {
    if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
  }

  static sockaddr_in loopback(int port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }

 private:
  int descriptor_;
};

// A listening socket on a free port.
class RawListener {
 public:
  RawListener() : descriptor_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = RawSocket::loopback(0);
    socklen_t size = sizeof(address);
    ::bind(descriptor_, reinterpret_cast<const sockaddr*>(&address), size);
    ::listen(descriptor_, 8);
    ::getsockname(descriptor_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
  }
  ~RawListener() { ::close(descriptor_); }
  RawListener(const RawListener&) = delete;
  int port() const { return port_; }
  RawSocket accept() const { return RawSocket(::accept4(descriptor_, nullptr, nullptr, SOCK_CLOEXEC)); }

 private:
  int descriptor_;
  int port_ = 0;
};

}  // namespace gantry::testing
