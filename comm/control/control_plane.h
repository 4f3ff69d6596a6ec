// The control plane of a job. It works with every backend, and reports within seconds that a rank is lost and
// why the job ends.
//
// Every rank has one TCP connection to the job's hub. The hub is in rank 0's process, or in the launch if
// `gantry launch` has started the ranks.
// - Hub in rank 0: both ends of each connection send a heartbeat every heartbeat_seconds. A peer is lost if
//   no heartbeat arrives for lost_after_seconds, or if its connection closes before the end of the job. Rank
//   0 reports a lost rank to all others. Each other rank detects the loss of rank 0 by itself.
// - Hub in a launch: the shims of the ranks send the heartbeats and report how their ranks end. The ranks
//   send no heartbeats.
// A failure that a rank reports with tell() is sent to all ranks; the first one that reaches the hub counts.
// A stop request of a rank reaches all others within two heartbeats. The control plane uses neither tensors
// nor MPI.
//
// Each control plane has one thread, blocked in epoll while nothing happens. It calls the events, which must
// return soon. The public functions may be called from any thread.
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
  double heartbeat_seconds = 1;                   // 0: no heartbeats, only the other frames
  double lost_after_seconds = 15;                 // at least two heartbeats
  double timeout_seconds = 60;                    // deadline of rendezvous() and leave()
  double handshake_seconds = 5;                   // time for a new connection to send its hello
  std::function<std::string(int)> describe_rank;  // "rank 2 (pp 1, dp 0, tp 0)"
  std::function<void(const std::string&)> warn =
      {};  // gets a line for each rejected connection; if empty: stderr as "warning: <line>"
  std::function<bool()> wants_stop = {};  // called at each heartbeat: does this rank want the job to stop?
  bool beats = false;                     // this rank sends heartbeats to a hub in a launch too
  bool joins = false;                     // the rank was started again, and waits to be admitted
};

// At most one of on_lost and on_abort is called, once. It returns before rendezvous() or leave() throws for
// the failure.
struct ControlEvents {
  std::function<void(const JobFailure&)> on_lost;   // this rank found the rank lost; exit code 7
  std::function<void(const JobFailure&)> on_abort;  // the first failure, of another rank or this one
  // These ranks have left (their work is done), while others have not. Each rank is reported once, within a
  // heartbeat.
  std::function<void(const std::set<int>&)> on_left = {};
  std::function<void()> on_stop = {};  // another rank wants the job to stop; called once
  // In an elastic job: on_regroup when a new generation begins, on_waiting when a replica waits for its
  // admission.
  std::function<void(const JobMembers&)> on_regroup = {};
  std::function<void()> on_waiting = {};
  std::function<void()> on_record = {};  // another rank wants the records of all flight recorders
};

class ControlPlane {
 public:
  // Creates rank 0's control plane, with the hub. Listens on a free port of `address` until all ranks have
  // connected. Throws ResourceError if it cannot listen.
  static std::unique_ptr<ControlPlane> host(const ControlOptions& options, ControlEvents events,
                                            const std::string& address);
  // Creates the control plane of any other rank, or of every rank if the hub is in a launch.
  static std::unique_ptr<ControlPlane> join(const ControlOptions& options, ControlEvents events,
                                            const Rendezvous& meeting);
  // Closes the connections and ends the thread. Peers that have not left yet will consider this rank lost.
  ~ControlPlane();

  const Rendezvous& meeting() const { return meeting_; }

  // Waits until all ranks are connected. Collective over the job. Throws PeerError that names the missing
  // ranks at the deadline.
  void rendezvous();
  // Gathers a text of at most kMostPayload - 8 bytes from each rank, and returns them in rank order.
  // Collective over the ranks of the generation, after rendezvous(). Throws PeerError that names the missing
  // ranks at the deadline, with the cause if the job fails meanwhile, or if another generation has begun.
  std::vector<std::string> gather(const std::string& mine, int generation = 0);
  // Returns the ranks of the current generation.
  JobMembers members() const;
  // Waits for a generation after `after`. Returns false if none has begun after `seconds`. Throws PeerError
  // if the job fails.
  bool wait_for_generation(int after, double seconds);
  // Sends the policy of an elastic job to the hub of a launch. Call it before any rank is lost.
  void become_elastic(const ElasticPolicy& policy);
  // Requests that the waiting replicas join the job now, which begins a generation.
  void grow();
  // Reports that this rank has no connection with `rank`.
  void lose_unreachable(int generation, int rank);
  // Returns the local address of the connection to the hub. Call it after rendezvous().
  std::string address() const;
  // Asks all other ranks for the records of their flight recorders. Never blocks.
  void request_records();
  // Reports to all ranks that this one failed, unless a failure is already known. Never blocks.
  void tell(int exit_code, const std::string& cause);
  // Reports that this rank's work is done, and waits until all ranks have done so. Collective over the job. A
  // rank that ends after leave() does not count as lost. Throws PeerError at the deadline, with the cause if
  // the job fails meanwhile, or if another generation begins.
  void leave();

 private:
  struct Impl;
  ControlPlane(std::unique_ptr<Impl> impl, const Rendezvous& meeting);

  const Rendezvous meeting_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gantry
