// The one progress path of a job: every outstanding MPI request of this process, of every group, is tested by one call.
//
// Shared between threads, and guarded: everything by `mutex_`, but `moves_`, which is atomic, an operation's
// `finished_`, which is so too and set last, and `failures_`, which guards itself. Whoever asks or waits for anything
// moves everything; who finds another thread at it does not queue up. An operation that waits for shared memory is
// asked again and again ("polled"); who has waited a while sleeps at its doorbell, which the ranks of its host ring
// when they have changed or sent something.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mpi.h>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "gantry/comm/mpi/mpi_backend.h"
#include "gantry/comm/mpi/mpi_environment.h"
#include "gantry/comm/mpi/mpi_hosts.h"

namespace gantry {

class MpiOperation;

class MpiEngine : public std::enable_shared_from_this<MpiEngine> {
 public:
  // Collective over the job.
  static std::shared_ptr<MpiEngine> start(const WaitLimits& waits, std::function<std::string(int)> describe_rank,
                                          MpiLimits limits);

  int rank() const { return rank_; }
  int size() const { return size_; }
  double timeout_seconds() const { return timeout_seconds_; }
  const MpiLimits& limits() const { return limits_; }
  std::string describe_rank(int rank) const { return describe_rank_(rank); }

  MpiHosts& hosts() { return *hosts_; }
  MpiFailures& failures() { return failures_; }
  // Within advance() of a polled operation: something has moved, so more is likely to come soon.
  void note_move() { moves_.fetch_add(1, std::memory_order_relaxed); }

  // Starts it. The engine keeps it until it is finished, so that a Work may be dropped.
  void post(const std::shared_ptr<MpiOperation>& operation);
  // `thorough`: not only what is likely to have moved.
  void progress(bool thorough = false);

  // Within an operation's advance(): in chunks; `peer` is a rank of `communicator`. What comes must be `bytes` long
  // unless `exact` is false. `open` counts the requests under way, for an operation that tells them apart.
  void send(MpiOperation& operation, const void* data, std::int64_t bytes, int peer, int tag, MPI_Comm communicator,
            int* open = nullptr);
  void receive(MpiOperation& operation, void* data, std::int64_t bytes, int peer, int tag, MPI_Comm communicator,
               bool exact = true, int* open = nullptr);

  // Ends this rank's pending and later operations, and tells the control plane. The first cause stands.
  void fail(int exit_code, const std::string& cause);

  // Waits until all is sent; then the engine is of no more use.
  void close();
  bool closed() const { return closed_; }
  // Communicators may be freed: nothing failed and MPI runs.
  bool may_free() const;

 private:
  friend class MpiOperation;
  struct Pending {
    MpiOperation* operation;
    int peer;
    std::int64_t bytes;  // expected; -1 where that is not known
    bool incoming;
    int* open = nullptr;
  };

  MpiEngine(const WaitLimits& waits, std::function<std::string(int)> describe_rank, MpiLimits limits);
  void add(MPI_Request request, const Pending& pending);
  void progress_locked(bool thorough);
  void test_requests();
  void completed(const Pending& pending, int code, MPI_Status& status);
  void fail_locked(int exit_code, const std::string& cause);
  void advance(MpiOperation& operation);
  std::vector<int> missing_peers(const MpiOperation& operation) const;
  // False at the deadline. `rung`: what is waited for rings this rank's doorbell. `look` is called now and then with
  // the seconds waited so far, and may throw.
  bool wait_until(const std::function<bool()>& ready, bool rung, const std::function<void(double)>& look);
  void sleep(const std::function<bool()>& ready, std::chrono::microseconds longest);

  const double timeout_seconds_;
  SlowWaitNotices notices_;
  const std::function<std::string(int)> describe_rank_;
  const MpiLimits limits_;
  int rank_ = 0, size_ = 1;
  bool crowded_ = false;  // more ranks on this host than cores
  bool closed_ = false;
  MPI_Comm control_ = MPI_COMM_NULL;
  std::unique_ptr<MpiHosts> hosts_;
  MpiFailures failures_;

  std::mutex mutex_;
  std::vector<MPI_Request> requests_;
  std::vector<Pending> pending_;  // beside requests_
  std::vector<int> indices_;
  std::vector<MPI_Status> statuses_;
  std::vector<std::shared_ptr<MpiOperation>> live_;
  std::vector<MpiOperation*> polled_;  // of those, in the order of their posting
  unsigned looks_ = 0;
  std::vector<std::pair<Pending, MPI_Status>> completions_;
  std::atomic<std::uint64_t> moves_{0};
};

}  // namespace gantry
