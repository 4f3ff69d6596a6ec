// The messages of a job's processes over sockets: a TCP connection between each two ranks.
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
  JobToken token{};     // each connection begins with it
  double timeout_seconds = 60;
  std::function<std::string(int)> describe_rank;
  // As Transport::gather(): the control plane's.
  std::function<std::vector<std::string>(const std::string& mine, const std::string& waited)> gather;
  // Called while the ranks connect: throws if they need not do so any more.
  std::function<void()> check = [] {};
};

// Collective over the job: until all are connected. PeerError that names who is not, at the deadline.
std::unique_ptr<Transport> make_tcp_transport(const TcpOptions& options);

}  // namespace gantry
