// The sockets with which ranks connect to each other.
#pragma once

#include <netinet/in.h>
#include <string>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

namespace gantry {

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

// A numeric address and a port.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  SocketAddress(const std::string& address, int port);
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  int port() const {  // at the same offset in IPv4 and IPv6 addresses
    return ntohs(reinterpret_cast<const sockaddr_in*>(&storage)->sin_port);
  }
};

// Throws ResourceError for a call that failed with this errno.
[[noreturn]] void refuse_socket(const std::string& call, int error);

// Raises the soft limit of open files if a connection with each of `ranks` ranks needs it. Throws
// ResourceError if the hard limit is too low.
void allow_descriptors(int ranks);

}  // namespace gantry
