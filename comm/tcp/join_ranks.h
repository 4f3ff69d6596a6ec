// The making of a job's connections: each rank listens until all of higher ranks have come, and goes to the lower ones.
#pragma once

#include <vector>

#include "gantry/comm/tcp/tcp_transport.h"

namespace gantry {

// A socket for each other rank, by rank; -1 for this one. Collective over the job. PeerError for a rank that can't be
// reached, or, at the deadline, does not come; ResourceError where this process may have no more sockets.
std::vector<int> join_ranks(const TcpOptions& options);

}  // namespace gantry
