// Where a launch listens for the shims of its ranks.
#pragma once

#include <string>

namespace gantry::launcher {

// The IPv4 address of the interface of that name (or address), or loopback where none is given: over several
// hosts one must be. UsageError that lists this host's interfaces.
std::string launch_address(bool several_hosts, const std::string& name);

}  // namespace gantry::launcher
