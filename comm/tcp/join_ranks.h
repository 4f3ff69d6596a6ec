// Connects the ranks of a job with each other: a rank accepts the connections of all higher ranks, and opens one to
// each lower rank.
#pragma once

#include <vector>

#include "gantry/comm/tcp/tcp_transport.h"

namespace gantry {

// Returns a socket for each other rank, by rank; -1 for this one. Collective over the job. Throws PeerError that names
// the missing ranks at the deadline; ResourceError if this process cannot have the sockets.
std::vector<int> join_ranks(const TcpOptions& options);

}  // namespace gantry
