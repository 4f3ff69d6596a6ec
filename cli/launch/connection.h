// The TCP connections between a launch and the shims of its ranks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gantry/cli/launch/descriptor.h"
#include "gantry/cli/launch/frames.h"

namespace gantry::cli {

// Where a launch listens, as its ranks are told: in the environment, which only their user can read.
struct Rendezvous {
  static constexpr const char* kVariable = "GANTRY_LAUNCH";
  std::vector<std::string> addresses;  // tried in this order
  int port = 0;
  std::string token;
};
std::string encode_rendezvous(const Rendezvous& rendezvous);
std::optional<Rendezvous> decode_rendezvous(const std::string& text);

// Of this host's interfaces that are up: loopback alone, or all but loopback, or the one that `interface` names.
// UsageError where it has no address.
std::vector<std::string> addresses_to_listen_on(bool several_hosts, const std::string& interface);

struct Listener {
  Descriptor socket;
  int port = 0;
};
// On loopback, or on every address. Port 0 is any free one. ResourceError.
Listener listen_for_ranks(bool several_hosts, int port);

// A rank's connection to its launch, over the first address that answers; not open if none does.
Descriptor connect_to_launch(const Rendezvous& rendezvous);

// A peer that is out of reach is found out by the kernel within 15 s: by its silence, and by what it does not confirm.
void watch_peer(int socket, bool several_hosts);

// One end of a connection: bytes in both directions.
class Connection {
 public:
  explicit Connection(Descriptor socket) : socket_(std::move(socket)) {}
  int get() const { return socket_.get(); }
  bool is_open() const { return open_; }
  // Closed because the other side's host is out of reach, not because its process has ended.
  bool out_of_reach() const { return out_of_reach_; }
  void close();

  // Waits where the other side does not take them. A failure closes.
  void send(const Frame& frame);
  // Reads what is there and gives the whole frames. At the end, or by a fault, closes.
  std::vector<Frame> receive();

 private:
  Descriptor socket_;
  void fail(int error);

  FrameReader reader_;
  bool open_ = true, out_of_reach_ = false;
};

}  // namespace gantry::cli
