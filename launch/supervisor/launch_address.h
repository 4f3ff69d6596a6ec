// The address at which a launch listens for the shims of its ranks.
#pragma once

#include <string>

namespace gantry::launcher {

// Returns the IPv4 address of the interface with that name (or address), or loopback if `name` is empty. With
// several hosts it must not be empty. Throws UsageError that lists the interfaces of this host.
std::string launch_address(bool several_hosts, const std::string& name);

}  // namespace gantry::launcher
