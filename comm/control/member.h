// One rank's part of the control plane: its connection to the hub.
//
// Belongs to the thread that runs its io_context, except for the constructor and join(), which may run before
// the thread does. Milestones are shared.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "gantry/comm/control/connection.h"
#include "gantry/comm/control/control_plane.h"
#include "gantry/comm/control/heartbeats.h"

namespace gantry::control {

struct Progress {
  bool begun = false;                 // all ranks have connected
  bool ended = false;                 // the work of all ranks is done
  std::set<int> late;                 // the hub's answer: ranks that have not connected or are not done
  std::string trouble;                // why the hub cannot be reached so far
  std::string address;                // the local address of the connection to the hub
  JobMembers members;                 // the ranks of the current generation
  std::map<int, std::string> shared;  // the texts of the ranks, in this generation
  std::optional<JobFailure> failure;
};

// The progress of the job: written by the control thread, read by threads that wait for it. Guarded by its
// mutex.
class Milestones {
 public:
  // Calls `change` under the lock.
  template <class Change>
  void update(const Change& change) {
    {
      const std::lock_guard lock(mutex_);
      change(progress_);
    }
    changed_.notify_all();
  }
  // Waits until `reached(progress)` is true or a failure is known, at most `seconds`. Returns the progress at
  // that time.
  template <class Reached>
  Progress wait(double seconds, const Reached& reached) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::duration<double>(seconds),
                      [&] { return progress_.failure || reached(progress_); });
    return progress_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  Progress progress_;
};

class Member {
 public:
  Member(asio::io_context& context, const ControlOptions& options, const ControlEvents& events, Milestones& milestones);

  void join(const Rendezvous& meeting);
  void tell(const JobFailure& failure);  // this rank failed; the hub decides whether its failure counts
  void lose(const JobFailure& failure);  // this process has detected that a rank is lost
  void finish() { send(encode_frame(FrameKind::done)); }  // this rank's work is done
  void ask() { send(encode_frame(FrameKind::ask)); }      // which ranks are late? Sets Progress::late
  void share(int generation, const std::string& bytes) { send(encode_share({options_.rank, generation, bytes})); }
  void become_elastic(const ElasticPolicy& policy) { send(encode_policy(policy)); }
  void grow() { send(encode_frame(FrameKind::grow)); }
  void request_records() { send(encode_frame(FrameKind::record)); }  // by all others
  void lose_unreachable(int generation, int rank) { send(encode_lost(generation, rank)); }
  void close();

 private:
  asio::awaitable<void> connect(tcp::endpoint hub);
  // Returns true if the hub closed the connection before its first frame: it had too many pending
  // connections.
  asio::awaitable<bool> converse(std::shared_ptr<Connection> connection);
  void take(const Frame& frame);
  void hear(const JobFailure& failure);
  void regroup(const JobMembers& members);
  void fail(const JobFailure& failure, const std::function<void(const JobFailure&)>& event);
  void lose_hub(const std::string& how);
  void end();
  void beat();
  void send(const std::string& frame);
  bool over() const { return closing_ || ended_ || failed_; }
  bool is_watched() const { return options_.hub == HubPlace::rank0 && options_.heartbeat_seconds > 0; }

  asio::io_context& context_;
  const ControlOptions& options_;
  const ControlEvents& events_;
  Milestones& milestones_;
  JobToken token_{};
  std::shared_ptr<Connection> connection_;  // null if not connected
  Heartbeats pulse_;
  std::optional<JobFailure> notified_;  // this rank's own failure, which the hub has not answered yet
  bool answered_ = false;               // the hub's first frame has arrived
  bool begun_ = false, stops_ = false;
  bool closing_ = false, ended_ = false, failed_ = false;
};

}  // namespace gantry::control
