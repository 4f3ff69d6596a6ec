// The name of this host, and its networks.
#pragma once

#include <string>
#include <vector>

namespace gantry {

// The output of `hostname`; "unknown" if the name is not available.
std::string host_name();

struct NetworkInterface {
  std::string name, address;  // "eth0", "10.0.0.1"
  bool loopback = false;
  bool v6 = false;
};

// The interfaces that are up and have an address, IPv4 first. Throws ResourceError.
std::vector<NetworkInterface> network_interfaces();

// "eth0 (10.0.0.1), lo (127.0.0.1)".
std::string list_interfaces(const std::vector<NetworkInterface>& interfaces);

}  // namespace gantry
