#include "gantry/core/host/addresses.h"

#include <arpa/inet.h>
#include <charconv>
#include <fmt/format.h>
#include <sstream>
#include <vector>

#include "gantry/core/error.h"
#include "gantry/core/host/this_host.h"

namespace gantry {
namespace {

// Whether the address is in `network`, such as "10.77.0.0/16".
bool lies_in(const NetworkInterface& interface, const std::string& network) {
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
  const auto all = network_interfaces();
  for (const NetworkInterface& one : all)
    if (one.name == interface || one.address == interface) return one.address;
  throw ConfigError({"comm.interface",
                     "'" + interface + "' is not a network interface or address of this host that is up",
                     "one of " + list_interfaces(all), "choose one of them"});
}

std::string address_among(const std::string& networks) {
  const auto all = network_interfaces();
  std::istringstream names(networks);
  for (std::string name; std::getline(names, name, ',');)
    for (const NetworkInterface& one : all)
      if (one.name == name || one.address == name || lies_in(one, name)) return one.address;
  return "";
}

std::string control_address(const std::string& interface, bool one_host, const std::string& launcher_networks) {
  if (!interface.empty()) return interface_address(interface);
  if (one_host) return loopback_address();
  if (const std::string named = address_among(launcher_networks); !named.empty()) return named;
  auto others = network_interfaces();
  std::erase_if(others, [](const NetworkInterface& one) { return one.loopback; });
  if (others.empty())
    throw ResourceError({"control plane", "this host has no address but loopback, and the job has several hosts",
                         "a network interface that is up", ""});
  throw ConfigError({"comm.interface",
                     "the job has several hosts, but no network interface is set, so ranks would listen on a network "
                     "that was not chosen",
                     "a network interface of rank 0's host: " + list_interfaces(others),
                     "add --interface NAME to gantry launch, or --set comm.interface=NAME to gantry train"});
}

}  // namespace gantry
