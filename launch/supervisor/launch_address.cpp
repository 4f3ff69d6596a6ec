#include "gantry/launch/supervisor/launch_address.h"

#include "gantry/core/error.h"
#include "gantry/core/host/addresses.h"
#include "gantry/core/host/this_host.h"

namespace gantry::launcher {

std::string launch_address(bool several_hosts, const std::string& name) {
  if (name.empty() && !several_hosts) return loopback_address();
  auto all = network_interfaces();
  std::erase_if(all, [](const NetworkInterface& one) { return one.v6; });
  for (const auto& one : all)
    if (one.name == name || one.address == name) return one.address;
  if (!name.empty())
    throw UsageError({"--interface " + name, "the interface has no IPv4 address on this host, or is down",
                      "one of " + list_interfaces(all), "choose another interface"});
  std::erase_if(all, [](const NetworkInterface& one) { return one.loopback; });
  throw UsageError(
      {"gantry launch",
       "the job has several hosts, but --interface is not set, so the launch would listen on every network",
       all.empty() ? "a network that connects the hosts" : "one of " + list_interfaces(all), "add --interface NAME"});
}

}  // namespace gantry::launcher
