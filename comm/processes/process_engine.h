// The progress engine of a job. One call tests every pending request of this process, in all groups.
//
// Shared between threads: everything is guarded by `mutex_`, except `moves_` and `finished_` of an operation,
// which are atomic (`finished_` is set last), and `failures_`, which has its own lock. A thread that polls or
// waits for an operation advances all operations; if another thread does so at the time, it does not queue
// for the lock. An operation that waits for shared memory is polled repeatedly. A thread that has waited for
// a while sleeps at its doorbell. The ranks of its host ring it when they have changed shared memory or sent
// a message.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "gantry/comm/processes/job_hosts.h"
#include "gantry/comm/processes/known_failures.h"
#include "gantry/comm/processes/process_backend.h"
#include "gantry/comm/processes/transport.h"

namespace gantry {

class ProcessOperation;

class ProcessEngine : public std::enable_shared_from_this<ProcessEngine> {
 public:
  // Collective over the job.
  ProcessEngine(std::unique_ptr<Transport> transport, std::shared_ptr<KnownFailures> failures, const WaitLimits& waits,
                std::function<std::string(int)> describe_rank, ProcessLimits limits);

  int rank() const { return transport_->rank(); }
  int size() const { return transport_->size(); }
  Transport& transport() { return *transport_; }
  double timeout_seconds() const { return timeout_seconds_; }
  const ProcessLimits& limits() const { return limits_; }
  std::string describe_rank(int rank) const { return describe_rank_(rank); }

  JobHosts& hosts() { return hosts_; }
  KnownFailures& failures() { return *failures_; }
  // A channel of all ranks, for making groups.
  Transport::Channel& everyone() { return *everyone_; }
  // Returns the first of two channel numbers, for a group whose first member is this rank.
  std::uint64_t new_channels() {
    return (static_cast<std::uint64_t>(rank()) << 32) + 2 * channels_.fetch_add(1, std::memory_order_relaxed);
  }
  // Called in advance() of a polled operation: something has moved, so more is likely to follow soon.
  void note_move() { moves_.fetch_add(1, std::memory_order_relaxed); }

  // Starts the operation. The engine keeps it until it is finished, so its Work may be destroyed before.
  void post(const std::shared_ptr<ProcessOperation>& operation);
  // `thorough`: also test operations that are unlikely to have moved.
  void progress(bool thorough = false);

  // Called in an operation's advance(). They split the data into chunks; `peer` is a member of `channel`. A
  // message must have `bytes` bytes unless `exact` is false. `open` counts the requests in flight, for an
  // operation that distinguishes them.
  void send(ProcessOperation& operation, const void* data, std::int64_t bytes, int peer, int tag,
            Transport::Channel& channel, int* open = nullptr);
  void receive(ProcessOperation& operation, void* data, std::int64_t bytes, int peer, int tag,
               Transport::Channel& channel, bool exact = true, int* open = nullptr);

  std::vector<int> lost_ranks();  // as reported by the transport
  // Ends this rank's pending and later operations, and reports the failure to the control plane. The first
  // cause counts.
  void fail(int exit_code, const std::string& cause);

  // Waits until all messages are sent. The engine cannot be used afterwards.
  void close();
  bool closed() const { return closed_; }
  // Drops all operations after a failure, in place of close(). Returns false if the transport cannot do that.
  // The engine must then be kept, because the transport may still write to the operations' memory.
  bool abandon();

 private:
  friend class ProcessOperation;
  struct Pending {
    ProcessOperation* operation;  // null: no request has this number
    int peer;
    std::int64_t bytes;  // expected; -1 if unknown
    bool incoming;
    int* open = nullptr;
  };

  std::string begin_text() const;
  int add(const Pending& pending);
  void progress_locked(bool thorough);
  void test_requests();
  void test_transport();
  void completed(const Pending& pending, const Transport::Completion& end);
  void fail_locked(int exit_code, const std::string& cause);
  void advance(ProcessOperation& operation);
  std::vector<int> missing_peers(const ProcessOperation& operation) const;
  // Returns false at the deadline. `rung`: this rank's doorbell rings when `ready` may have changed. `look`
  // is called from time to time with the seconds waited so far, and may throw.
  bool wait_until(const std::function<bool()>& ready, bool rung, const std::function<void(double)>& look);
  void sleep(const std::function<bool()>& ready, std::chrono::microseconds longest);

  const double timeout_seconds_;
  SlowWaitNotices notices_;
  const std::function<std::string(int)> describe_rank_;
  const ProcessLimits limits_;
  bool closed_ = false;
  const std::unique_ptr<Transport> transport_;
  const std::shared_ptr<KnownFailures> failures_;
  JobHosts hosts_;
  const bool crowded_;  // this host has more ranks than cores
  std::unique_ptr<Transport::Channel> everyone_;
  std::atomic<std::uint64_t> channels_{1};  // the first one is for `everyone_`

  std::mutex mutex_;
  std::vector<Pending> pending_;  // by number of the request
  std::vector<int> free_;         // unused numbers
  std::vector<std::shared_ptr<ProcessOperation>> live_;
  std::vector<ProcessOperation*> polled_;  // polled operations, in the order of their posts
  unsigned looks_ = 0;
  std::vector<Transport::Completion> completions_;
  std::atomic<std::uint64_t> moves_{0};
};

}  // namespace gantry
