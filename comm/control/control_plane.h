// The control plane of a job: beside any backend, it says within seconds that a rank is lost, and why the job ends.
//
// Every rank has one TCP connection to the job's hub, which stands in rank 0's process, or in the launch where
// `gantry launch` has started the ranks.
// - In rank 0, both ends of each connection send a sign of life every heartbeat_seconds; an end that hears none for
//   lost_after_seconds, or whose peer's connection closes before the job's end, has lost the peer. Rank 0 tells all
//   others; that rank 0 is lost each of them finds for itself.
// - In a launch, the shims of the ranks send the signs of life, and know how their ranks end: the ranks send none.
// A failure that a rank tells (tell()) goes to all ranks: the first one that comes to the hub stands. A rank's wish to
// stop goes to all others within two heartbeats. Knows neither tensors nor MPI.
//
// Each plane has one thread, blocked in epoll while nothing happens. Events are called on it: they must return soon.
// The public functions may be called from any thread.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "gantry/comm/control/frames.h"
#include "gantry/comm/control/rendezvous.h"

namespace gantry {

enum class HubPlace { rank0, launch };

struct ControlOptions {
  int rank = 0;
  int ranks = 1;
  HubPlace hub = HubPlace::rank0;
  double heartbeat_seconds = 1;                   // 0: no signs of life; the connections and what they carry stay
  double lost_after_seconds = 15;                 // at least two heartbeats
  double timeout_seconds = 60;                    // of rendezvous() and leave()
  double handshake_seconds = 5;                   // for a new connection to say who it is
  std::function<std::string(int)> describe_rank;  // "rank 2 (pp 1, dp 0, tp 0)"
  std::function<void(const std::string&)> warn =
      {};  // gets a line for each connection that is refused; left out: stderr as "warning: <line>"
  std::function<bool()> wants_stop = {};  // asked at each heartbeat: does this rank want the job to stop?
  bool beats = false;                     // this rank sends signs of life to a hub in a launch too
  bool joins = false;                     // the rank was started again, and waits until an elastic job takes it in
};

// At most one of the first two is called, once. It returns before rendezvous() or leave() throws for that failure.
struct ControlEvents {
  std::function<void(const JobFailure&)> on_lost;  // this rank found the rank lost; exit code 7
  std::function<void(const JobFailure&)>
      on_abort;  // the first failure: another rank's, or the one that this rank reported
  // These ranks have left (their work is done), while others have not. Each rank is reported once, within a heartbeat.
  std::function<void(const std::set<int>&)> on_left = {};
  std::function<void()> on_stop = {};  // another rank wants the job to stop; called once
  // In an elastic job: other ranks form the job from now on; and a replica waits until the job takes it in.
  std::function<void(const JobMembers&)> on_regroup = {};
  std::function<void()> on_waiting = {};
};

class ControlPlane {
 public:
  // Rank 0's, with the hub. Listens on a free port of `address` until all ranks have come. ResourceError if it can't.
  static std::unique_ptr<ControlPlane> host(const ControlOptions& options, ControlEvents events,
                                            const std::string& address);
  // Any other rank's; every rank's where the hub is in a launch.
  static std::unique_ptr<ControlPlane> join(const ControlOptions& options, ControlEvents events,
                                            const Rendezvous& meeting);
  // Closes the connections and ends the thread. Peers that have not left find this rank lost.
  ~ControlPlane();

  const Rendezvous& meeting() const { return meeting_; }

  // Collective over the job: until all ranks are connected. PeerError that names the missing ranks at the deadline.
  void rendezvous();
  // Gathers a text from each rank, by rank, of at most kMostPayload - 8 bytes. Collective over the ranks of the
  // generation, after rendezvous(). PeerError that names the missing ranks at the deadline, with the cause if the job
  // fails meanwhile, and if another generation has begun.
  std::vector<std::string> gather(const std::string& mine, int generation = 0);
  // The ranks of the present generation.
  JobMembers members() const;
  // Waits for a generation after this one. False if none has begun after `seconds`. PeerError if the job fails.
  bool wait_for_generation(int after, double seconds);
  // Sends the hub of a launch the policy of an elastic job, before any rank is lost.
  void become_elastic(const ElasticPolicy& policy);
  // Requests that the replicas that wait join the job now: a generation begins.
  void grow();
  // Reports that this rank has no connection with that one.
  void lose_unreachable(int generation, int rank);
  // This host's, by which it reaches the hub. After rendezvous().
  std::string address() const;
  // Tells all ranks that this one failed, unless a failure is known already. Never blocks.
  void tell(int exit_code, const std::string& cause);
  // Collective over the job: this rank's work is done. Until all ranks' is; a rank that ends after it is not lost.
  // PeerError at the deadline, with the cause if the job fails meanwhile, and if another generation begins.
  void leave();

 private:
  struct Impl;
  ControlPlane(std::unique_ptr<Impl> impl, const Rendezvous& meeting);

  const Rendezvous meeting_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gantry
