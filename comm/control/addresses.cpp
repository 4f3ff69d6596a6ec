#include "gantry/comm/control/addresses.h"

#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <fstream>
#include <ifaddrs.h>
#include <memory>
#include <net/if.h>
#include <sstream>
#include <vector>

#include "gantry/core/error.h"

namespace gantry {
namespace {

struct Interface {
  std::string name, address;
  bool loopback = false;
  bool v6 = false;
};

std::string address_text(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address->sa_family == AF_INET)
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text, sizeof(text));
  else if (address->sa_family == AF_INET6 &&
           !IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr))
    ::inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, text, sizeof(text));
  return text;
}

// Those that are up and have an address of their own, IPv4 first.
std::vector<Interface> interfaces() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0)
    throw ResourceError(
        {"comm.interface", std::string("this host's interfaces can't be listed: ") + std::strerror(errno), "", ""});
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, ::freeifaddrs);
  std::vector<Interface> v4, v6;
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

// The interface of the default route; "" without one.
std::string default_route() {
  std::ifstream routes("/proc/net/route");
  std::string line;
  std::getline(routes, line);  // the columns' names
  while (std::getline(routes, line)) {
    std::istringstream columns(line);
    std::string name, destination;
    if (columns >> name >> destination && destination == "00000000") return name;
  }
  return "";
}

}  // namespace

std::string loopback_address() { return "127.0.0.1"; }

std::string interface_address(const std::string& interface) {
  std::string known;
  for (const Interface& one : interfaces()) {
    if (one.name == interface || one.address == interface) return one.address;
    known += fmt::format("{}{} ({})", known.empty() ? "" : ", ", one.name, one.address);
  }
  throw ConfigError({"comm.interface", "'" + interface + "' is no interface or address of this host that is up",
                     "one of " + known, "name another one"});
}

std::string own_address() {
  const std::string route = default_route();
  std::string first;
  for (const Interface& one : interfaces()) {
    if (one.loopback) continue;
    if (one.name == route) return one.address;
    if (first.empty()) first = one.address;
  }
  if (first.empty())
    throw ResourceError({"control plane", "this host has no address but loopback, and the job has several hosts",
                         "a network interface that is up", "set comm.interface, or comm.heartbeat_seconds to 0"});
  return first;
}

std::string control_address(const std::string& interface, bool one_host) {
  if (!interface.empty()) return interface_address(interface);
  return one_host ? loopback_address() : own_address();
}

}  // namespace gantry
