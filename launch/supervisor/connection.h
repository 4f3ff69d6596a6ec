// The TCP connections between a launch and the shims of its ranks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gantry/launch/supervisor/descriptor.h"
#include "gantry/launch/supervisor/frames.h"

namespace gantry::launcher {

// Where a launch listens, as its ranks are told: in the environment, which only their user can read.
struct Rendezvous {
  static constexpr const char* kVariable = "GANTRY_LAUNCH";
  std::string address;
  int port = 0;
  std::string token;
};
std::string encode_rendezvous(const Rendezvous& rendezvous);
std::optional<Rendezvous> decode_rendezvous(const std::string& text);

struct Listener {
  Descriptor socket;
  int port = 0;
  std::string address;  // by which ranks reach it
};
// On the address of `interface` (a name or an address of this host's), or of loopback where none is given: over several
// hosts one must be. Port 0 is any free one. UsageError lists this host's interfaces; ResourceError.
Listener listen_for_ranks(bool several_hosts, const std::string& interface, int port);

// A rank's connection to its launch, not open if nobody answers.
Descriptor connect_to_launch(const Rendezvous& rendezvous);

// A peer that is out of reach is found out by the kernel within 15 s: by its silence, and by what it does not confirm.
void watch_peer(int socket, bool several_hosts);

// One end of a connection: bytes in both directions.
class Connection {
 public:
  // A peer that may be anyone is heard no further than a frame of `largest` bytes.
  explicit Connection(Descriptor socket, std::size_t largest = FrameReader::kLargest)
      : socket_(std::move(socket)), reader_(largest) {}
  void trust() { reader_.allow(FrameReader::kLargest); }
  int get() const { return socket_.get(); }
  bool is_open() const { return open_; }
  // Closed because the other side's host is out of reach, not because its process has ended.
  bool out_of_reach() const { return out_of_reach_; }
  void close();

  // Waits where the other side does not take them. A failure closes.
  void send(const Frame& frame);
  // Reads what is there, at most a MiB so that nobody is heard alone, and gives the whole frames. At the end, or by a
  // fault, closes.
  std::vector<Frame> receive();

 private:
  Descriptor socket_;
  void fail(int error);

  FrameReader reader_;
  bool open_ = true, out_of_reach_ = false;
};

}  // namespace gantry::launcher
