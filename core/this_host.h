// What this host is called, and the networks that it is on.
#pragma once

#include <string>
#include <vector>

namespace gantry {

// As `hostname` prints it; "unknown" where it can't be had.
std::string host_name();

struct NetworkInterface {
  std::string name, address;  // "eth0", "10.0.0.1"
  bool loopback = false;
  bool v6 = false;
};

// Those that are up and have an address of their own, IPv4 first. ResourceError.
std::vector<NetworkInterface> network_interfaces();

// "eth0 (10.0.0.1), lo (127.0.0.1)".
std::string list_interfaces(const std::vector<NetworkInterface>& interfaces);

}  // namespace gantry
