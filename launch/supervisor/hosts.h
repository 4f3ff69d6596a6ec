// The hosts of a launch, and the number of ranks that each may run.
#pragma once

#include <string>
#include <vector>

namespace gantry::launcher {

struct Host {
  std::string name;
  int slots = 1;  // maximum number of ranks
};

// Parses "a:2,b:2"; a host without a count has one slot. Throws UsageError for an empty name, a count below 1
// or a host that is named twice.
std::vector<Host> parse_hosts(const std::string& text);

// Reads Open MPI's format: one line per host, "NAME [slots=N] [max_slots=N]"; '#' begins a comment. Throws
// InputError with the line number for anything else.
std::vector<Host> read_hostfile(const std::string& path);

// True if the host has the name of this host, or is localhost.
bool is_this_host(const Host& host);

int total_slots(const std::vector<Host>& hosts);

}  // namespace gantry::launcher
