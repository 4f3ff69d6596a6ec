#include "gantry/core/host/this_host.h"

#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <memory>
#include <net/if.h>
#include <unistd.h>

#include "gantry/core/error.h"

namespace gantry {
namespace {

// Returns "" for an address that is valid only on its own link.
std::string address_text(const sockaddr* address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address->sa_family == AF_INET)
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text.data(), text.size());
  else if (address->sa_family == AF_INET6 &&
           !IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr))
    ::inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, text.data(), text.size());
  return text.data();
}

}  // namespace

std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name[0] != '\0' ? name.data() : "unknown";
}

std::vector<NetworkInterface> network_interfaces() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0)
    throw ResourceError(
        {"this host", std::string("its network interfaces cannot be listed: ") + std::strerror(errno), "", ""});
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, ::freeifaddrs);
  std::vector<NetworkInterface> v4, v6;
  for (const ifaddrs* entry = list; entry; entry = entry->ifa_next) {
    if (!entry->ifa_addr || !(entry->ifa_flags & IFF_UP)) continue;
    const std::string address = address_text(entry->ifa_addr);
    const bool is_v6 = entry->ifa_addr->sa_family == AF_INET6;
    if (!address.empty())
      (is_v6 ? v6 : v4).push_back({entry->ifa_name, address, (entry->ifa_flags & IFF_LOOPBACK) != 0, is_v6});
  }
  v4.insert(v4.end(), v6.begin(), v6.end());
  return v4;
}

std::string list_interfaces(const std::vector<NetworkInterface>& interfaces) {
  std::string text;
  for (const auto& one : interfaces) text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", one.name, one.address);
  return text;
}

}  // namespace gantry
