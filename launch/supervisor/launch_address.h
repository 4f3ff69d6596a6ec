// Where a launch listens for the shims of its ranks.
#pragma once

#include <string>

namespace gantry::launcher {

// The IPv4 address of `interface` (a name or an address of this host's), or loopback where none is given: over several
// hosts one must be. UsageError that lists this host's interfaces.
std::string launch_address(bool several_hosts, const std::string& interface);

}  // namespace gantry::launcher
