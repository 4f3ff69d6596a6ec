// The control plane of a job: beside any backend, it says within seconds that a rank is lost, and why the job ends.
//
// A star: every rank has one TCP connection to rank 0. Both ends of each send a sign of life every heartbeat_seconds;
// an end that hears none for lost_after_seconds, or whose peer's connection closes before the job's end, has lost the
// peer. Rank 0 tells all others; that rank 0 is lost each of them finds for itself. A failure that a rank tells
// (tell()) goes to all others, and the first one stands. A rank's wish to stop goes to all others within two
// heartbeats. Knows neither tensors nor MPI.
//
// Each plane has one thread, blocked in epoll while nothing happens. Events are called on it: they must return soon.
// The public functions may be called from any thread.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>

#include "gantry/comm/control/frames.h"
#include "gantry/comm/control/job_token.h"

namespace gantry {

struct ControlOptions {
  int rank = 0;
  int ranks = 1;
  double heartbeat_seconds = 1;
  double lost_after_seconds = 15;                 // at least two heartbeats
  double timeout_seconds = 60;                    // of rendezvous() and leave()
  double handshake_seconds = 5;                   // for a new connection to say who it is
  std::function<std::string(int)> describe_rank;  // "rank 2 (pp 1, dp 0, tp 0)"
  std::function<void(const std::string&)> warn =
      {};  // gets a line for each connection that is refused; left out: stderr as "warning: <line>"
  std::function<bool()> wants_stop = {};  // asked at each heartbeat: does this rank want the job to stop?
};

// At most one of the first two is called, once; never after this rank's own tell(). It returns before rendezvous() or
// leave() throws for that failure.
struct ControlEvents {
  std::function<void(const JobFailure&)> on_lost;   // this rank found the rank lost; exit code 7
  std::function<void(const JobFailure&)> on_abort;  // another rank told it
  // These ranks have left (their work is done), while others have not. Each rank is told of once, within a heartbeat.
  std::function<void(const std::set<int>&)> on_left = {};
  std::function<void()> on_stop = {};  // another rank wants the job to stop; called once
};

// Where rank 0 is to be found, and the secret that it expects. The job's launcher carries it to the other ranks.
struct Meeting {
  std::string address;
  int port = 0;
  JobToken token{};
};

class ControlPlane {
 public:
  // Rank 0's. Listens on a free port of `address` until all ranks have come. ResourceError if it can't.
  static std::unique_ptr<ControlPlane> host(const ControlOptions& options, ControlEvents events,
                                            const std::string& address);
  // Any other rank's.
  static std::unique_ptr<ControlPlane> join(const ControlOptions& options, ControlEvents events,
                                            const Meeting& meeting);
  // Closes the connections and ends the thread. Peers that have not left find this rank lost.
  ~ControlPlane();

  const Meeting& meeting() const { return meeting_; }

  // Collective over the job: until all ranks are connected. PeerError that names the missing ranks at the deadline.
  void rendezvous();
  // Tells all ranks that this one failed, unless a failure is known already. Never blocks.
  void tell(int exit_code, const std::string& cause);
  // Collective over the job: this rank's work is done. Until all ranks' is; a rank that ends after it is not lost.
  // PeerError at the deadline, and with the cause if the job fails meanwhile.
  void leave();

 private:
  struct Impl;
  explicit ControlPlane(std::unique_ptr<Impl> impl);

  Meeting meeting_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gantry
