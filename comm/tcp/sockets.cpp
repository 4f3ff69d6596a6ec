#include "gantry/comm/tcp/sockets.h"

#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <sys/resource.h>

#include "gantry/core/error.h"

namespace gantry {
namespace {

// Descriptors of a process in addition to its connections with other ranks: files, pipes and the control
// plane.
constexpr rlim_t kOtherDescriptors = 64;

}  // namespace

SocketAddress::SocketAddress(const std::string& address, int port) {
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

void refuse_socket(const std::string& call, int error) {
  throw ResourceError({"comm.backend: tcp", call + " failed: " + std::strerror(error), "",
                       error == EMFILE || error == ENFILE ? "raise the limit of open files (ulimit -n)" : ""});
}

void allow_descriptors(int ranks) {
  const rlim_t needed = static_cast<rlim_t>(ranks) + kOtherDescriptors;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed) return;
  if (limit.rlim_max < needed)
    throw ResourceError({"comm.backend: tcp",
                         fmt::format("the limit of open files is {}, too low for a connection with each of {} ranks",
                                     limit.rlim_max, ranks),
                         fmt::format("at least {}", needed), "raise it (ulimit -n)"});
  limit.rlim_cur = needed;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace gantry
