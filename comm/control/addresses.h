// The address that a server of this process binds.
#pragma once

#include <string>

namespace gantry {

// "127.0.0.1".
std::string loopback_address();

// The address of `interface`, a network interface's name ("eth0") or one of this host's addresses. ConfigError that
// lists what this host has.
std::string interface_address(const std::string& interface);

// The address by which other hosts reach this one: of the interface that holds the default route, else of the first
// that is up. ResourceError if there is only loopback.
std::string own_address();

// comm.interface where it is set; else loopback on one host and the host's own address over several.
std::string control_address(const std::string& interface, bool one_host);

}  // namespace gantry
