// The one progress path of a job: every outstanding request of this process, of every group, is tested by one call.
//
// Shared between threads, and guarded: everything by `mutex_`, but `moves_`, which is atomic, an operation's
// `finished_`, which is so too and set last, and `failures_`, which guards itself. A thread that asks or waits for an
// operation advances all of them; if another thread does that already, it does not queue up. An operation that waits
// for shared memory is asked repeatedly ("polled"). A thread that has waited a while sleeps at its doorbell, which the
// ranks of its host ring when they have changed or sent something.
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
  // Joins all ranks: for the making of groups.
  Transport::Channel& everyone() { return *everyone_; }
  // The first of two numbers of channels, for a group whose first member this rank is.
  std::uint64_t new_channels() {
    return (static_cast<std::uint64_t>(rank()) << 32) + 2 * channels_.fetch_add(1, std::memory_order_relaxed);
  }
  // Within advance() of a polled operation: something has moved, so more is likely to come soon.
  void note_move() { moves_.fetch_add(1, std::memory_order_relaxed); }

  // Starts it. The engine keeps it until it is finished, so that a Work may be dropped.
  void post(const std::shared_ptr<ProcessOperation>& operation);
  // `thorough`: not only what is likely to have moved.
  void progress(bool thorough = false);

  // Within an operation's advance(): in chunks; `peer` is a member of `channel`. A message must have `bytes`
  // bytes unless `exact` is false. `open` counts the requests in flight, for an operation that tells them apart.
  void send(ProcessOperation& operation, const void* data, std::int64_t bytes, int peer, int tag,
            Transport::Channel& channel, int* open = nullptr);
  void receive(ProcessOperation& operation, void* data, std::int64_t bytes, int peer, int tag,
               Transport::Channel& channel, bool exact = true, int* open = nullptr);

  std::vector<int> lost_ranks();  // as the transport knows them
  // Ends this rank's pending and later operations, and tells the control plane. The first cause stands.
  void fail(int exit_code, const std::string& cause);

  // Waits until all is sent; then the engine is of no more use.
  void close();
  bool closed() const { return closed_; }
  // In place of close() after a failure: drops all operations. Returns false if the transport cannot do that; then the
  // engine must stay, because the transport may still write to their memory.
  bool abandon();

 private:
  friend class ProcessOperation;
  struct Pending {
    ProcessOperation* operation;  // null: no request has this number
    int peer;
    std::int64_t bytes;  // expected; -1 where that is not known
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
  // False at the deadline. `rung`: this rank's doorbell rings when `ready` may have changed. `look` is called now and
  // then with the seconds waited so far, and may throw.
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
  const bool crowded_;  // more ranks on this host than cores
  std::unique_ptr<Transport::Channel> everyone_;
  std::atomic<std::uint64_t> channels_{1};  // the first is for `everyone_`

  std::mutex mutex_;
  std::vector<Pending> pending_;  // by the number of the request
  std::vector<int> free_;         // numbers
  std::vector<std::shared_ptr<ProcessOperation>> live_;
  std::vector<ProcessOperation*> polled_;  // the polled ones, in the order of their posting
  unsigned looks_ = 0;
  std::vector<Transport::Completion> completions_;
  std::atomic<std::uint64_t> moves_{0};
};

}  // namespace gantry
