#include "gantry/comm/control/addresses.h"

#include <arpa/inet.h>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fmt/format.h>
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

std::string listed(const std::vector<Interface>& all) {
  std::string text;
  for (const Interface& one : all) text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", one.name, one.address);
  return text;
}

// Of "10.77.0.0/16".
bool lies_in(const Interface& interface, const std::string& network) {
  const auto slash = network.find('/');
  in_addr base{}, own{};
  if (slash == std::string::npos || interface.v6 ||
      ::inet_pton(AF_INET, network.substr(0, slash).c_str(), &base) != 1 ||
      ::inet_pton(AF_INET, interface.address.c_str(), &own) != 1)
    return false;
  int bits = 0;
  const char* end = network.data() + network.size();
  const auto read = std::from_chars(network.data() + slash + 1, end, bits);
  if (read.ec != std::errc() || read.ptr != end || bits < 0 || bits > 32) return false;
  const std::uint32_t mask = bits == 0 ? 0 : ~std::uint32_t{0} << (32 - bits);
  return ((ntohl(base.s_addr) ^ ntohl(own.s_addr)) & mask) == 0;
}

}  // namespace

std::string loopback_address() { return "127.0.0.1"; }

std::string interface_address(const std::string& interface) {
  const auto all = interfaces();
  for (const Interface& one : all)
    if (one.name == interface || one.address == interface) return one.address;
  throw ConfigError({"comm.interface", "'" + interface + "' is no interface or address of this host that is up",
                     "one of " + listed(all), "name another one"});
}

std::string address_among(const std::string& networks) {
  const auto all = interfaces();
  std::istringstream names(networks);
  for (std::string name; std::getline(names, name, ',');)
    for (const Interface& one : all)
      if (one.name == name || one.address == name || lies_in(one, name)) return one.address;
  return "";
}

std::string control_address(const std::string& interface, bool one_host, const std::string& launcher_networks) {
  if (!interface.empty()) return interface_address(interface);
  if (one_host) return loopback_address();
  if (const std::string named = address_among(launcher_networks); !named.empty()) return named;
  auto others = interfaces();
  std::erase_if(others, [](const Interface& one) { return one.loopback; });
  if (others.empty())
    throw ResourceError({"control plane", "this host has no address but loopback, and the job has several hosts",
                         "a network interface that is up", "set comm.heartbeat_seconds to 0 to do without"});
  throw ConfigError({"comm.interface",
                     "is not set, and the job has several hosts: ranks would listen on a network that nobody named",
                     "one of rank 0's host: " + listed(others),
                     "add --interface NAME to gantry launch, or --set comm.interface=NAME to gantry train"});
}

}  // namespace gantry
