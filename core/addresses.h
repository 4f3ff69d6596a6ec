// The address that a server of this process binds.
#pragma once

#include <string>

namespace gantry {

// "127.0.0.1".
std::string loopback_address();

// The address of `interface`, a network interface's name ("eth0") or one of this host's addresses. ConfigError that
// lists what this host has.
std::string interface_address(const std::string& interface);

// The same of the first of `networks` that this host has: interfaces, addresses and networks ("10.77.0.0/16") between
// commas, as Open MPI's parameters have them. "" if it has none.
std::string address_among(const std::string& networks);

// comm.interface where it is set; else loopback on one host, and over several what the launcher was told to keep to.
// Nothing is opened to a network that nobody has named: ConfigError that lists this host's interfaces, ResourceError if
// there is only loopback.
std::string control_address(const std::string& interface, bool one_host, const std::string& launcher_networks = "");

}  // namespace gantry
