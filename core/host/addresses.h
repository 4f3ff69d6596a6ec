// The address that a server of this process binds to.
#pragma once

#include <string>

namespace gantry {

// "127.0.0.1".
std::string loopback_address();

// The address of `interface`, which is the name of a network interface ("eth0") or an address of this host. Throws
// ConfigError with a list of this host's interfaces.
std::string interface_address(const std::string& interface);

// The address of the first of `networks` that this host has. `networks` is a comma-separated list of interfaces,
// addresses and networks ("10.77.0.0/16"), as in Open MPI's parameters. Returns "" if the host has none of them.
std::string address_among(const std::string& networks);

// comm.interface if it is set. Otherwise loopback on one host, and on several hosts the first of the launcher's
// networks. The server never binds to a network that was not named: throws ConfigError with a list of this host's
// interfaces, or ResourceError if there is only loopback.
std::string control_address(const std::string& interface, bool one_host, const std::string& launcher_networks = "");

}  // namespace gantry
