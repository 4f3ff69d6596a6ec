// Where ranks run: the hosts of a launch and how many ranks each may hold.
#pragma once

#include <string>
#include <vector>

namespace gantry::launcher {

struct Host {
  std::string name;
  int slots = 1;  // ranks that it may hold
};

// "a:2,b:2"; a host without a count holds one. UsageError for an empty name, a count below 1 or a host named twice.
std::vector<Host> parse_hosts(const std::string& text);

// Open MPI's form: a line a host, "NAME [slots=N] [max_slots=N]"; '#' begins a comment. InputError with the line for
// anything else.
std::vector<Host> read_hostfile(const std::string& path);

// By its name, or as localhost.
bool is_this_host(const Host& host);

int total_slots(const std::vector<Host>& hosts);

}  // namespace gantry::launcher
