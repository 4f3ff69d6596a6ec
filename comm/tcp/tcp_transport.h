// Messages between the processes of a job over sockets: one TCP connection for each pair of ranks.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gantry/comm/control/rendezvous.h"
#include "gantry/comm/processes/transport.h"

namespace gantry {

struct TcpOptions {
  int rank = 0;
  int size = 1;
  std::string address;  // local address for the connections of other ranks
  JobToken token{};     // sent first on each connection
  double timeout_seconds = 60;
  std::function<std::string(int)> describe_rank;
  // Implements Transport::gather(), with the control plane.
  std::function<std::vector<std::string>(const std::string& mine, const std::string& waited)> gather;
  // Called while the ranks connect. Throws if they need not connect any more.
  std::function<void()> check = [] {};
};

// Collective over the job: waits until all ranks are connected. Throws PeerError that names the missing ranks
// at the deadline.
std::unique_ptr<Transport> make_tcp_transport(const TcpOptions& options);

}  // namespace gantry
