// Connects the ranks of a job with each other: a rank accepts connections from all higher ranks, and connects
// to each lower rank.
#pragma once

#include <vector>

#include "gantry/comm/tcp/tcp_transport.h"

namespace gantry {

// Returns a socket for each other rank, by rank; -1 for this one. Collective over the job. Throws PeerError
// that names the missing ranks at the deadline, and ResourceError if this process cannot open enough sockets.
std::vector<int> join_ranks(const TcpOptions& options);

}  // namespace gantry
