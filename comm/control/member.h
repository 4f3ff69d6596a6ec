// One rank's part of its job's control plane: its connection to the hub.
//
// Belongs to the thread that runs its io_context, but for the constructor and join(), which may run before it does;
// Milestones are shared.
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
  bool begun = false;                 // all ranks have come
  bool ended = false;                 // all ranks' work is done
  std::set<int> late;                 // ranks that have not come or are not done, as the hub answered
  std::string trouble;                // why the hub can't be reached, so far
  std::string address;                // the local address of the connection to the hub
  JobMembers members;                 // the ranks of the job's present generation
  std::map<int, std::string> shared;  // the texts of ranks, in this generation
  std::optional<JobFailure> failure;
};

// How far the job has come: written by the control thread, for threads that wait for it. Guarded by its mutex.
class Milestones {
 public:
  // `change` runs under the lock.
  template <class Change>
  void update(const Change& change) {
    {
      const std::lock_guard lock(mutex_);
      change(progress_);
    }
    changed_.notify_all();
  }
  // Until `reached(progress)` or a failure, at most `seconds`; what is so then.
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
  void tell(const JobFailure& failure);                   // this rank failed; the hub says whether its failure stands
  void lose(const JobFailure& failure);                   // this process has found a rank lost
  void finish() { send(encode_frame(FrameKind::done)); }  // this rank's work is done
  void ask() { send(encode_frame(FrameKind::ask)); }      // who is late? The answer goes to the milestones
  void share(int generation, const std::string& bytes) { send(encode_share({options_.rank, generation, bytes})); }
  void become_elastic(const ElasticPolicy& policy) { send(encode_policy(policy)); }
  void grow() { send(encode_frame(FrameKind::grow)); }
  void lose_unreachable(int generation, int rank) { send(encode_lost(generation, rank)); }
  void close();

 private:
  asio::awaitable<void> connect(tcp::endpoint hub);
  // True if the hub closed the connection before its first frame: it had no room for one more pending connection.
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
  std::shared_ptr<Connection> connection_;  // null while there is none
  Heartbeats pulse_;
  std::optional<JobFailure> notified_;  // this rank's own failure, of which the hub has not spoken yet
  bool answered_ = false;               // the hub's first frame has come
  bool begun_ = false, stops_ = false;
  bool closing_ = false, ended_ = false, failed_ = false;
};

}  // namespace gantry::control
