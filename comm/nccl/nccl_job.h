// The state that one rank's communicators share: its device, the backend that carries everything except
// NCCL's operations, the first failure, and the watching thread.
//
// NCCL's operations run on the device and have no deadline. The watching thread checks every communicator
// several times per second. An error that NCCL reports, an operation that exceeds its deadline, or a failure
// of another rank ends the job. Then all communicators of this rank are aborted, which ends their operations
// on the device.
//
// Shared between threads: `communicators_` and `closing_` are guarded by `mutex_`.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "gantry/comm/nccl/communicator_ends.h"
#include "gantry/comm/nccl/nccl_backend.h"
#include "gantry/comm/nccl/nccl_device.h"

namespace gantry {

class NcclCommunicator;

class NcclJob {
 public:
  // Collective over the job.
  NcclJob(Backend& base, NcclOptions options);
  ~NcclJob();
  NcclJob(const NcclJob&) = delete;
  NcclJob& operator=(const NcclJob&) = delete;

  Backend& base() { return base_; }
  const NcclDevice& device() const { return device_; }
  double timeout_seconds() const { return options_.waits.timeout_seconds; }
  SlowWaitNotices& notices() { return notices_; }
  bool registers_memory() const { return options_.registers_memory; }
  bool sums_by_rank() const { return options_.sums_by_rank; }
  bool carries_messages(const std::string& label) const { return options_.carries_messages(label); }
  std::string describe_rank(int rank) const { return options_.describe_rank(rank); }
  bool has_ended(int rank) const { return base_.has_ended(rank); }
  std::string describe_self() const { return describe_rank(base_.rank()); }

  // Ends the pending and later operations of every rank. The first cause counts.
  void fail(const std::string& cause);
  bool failed() const { return failure_.is_set(); }
  void throw_if_failed() const { failure_.throw_if_set(); }  // PeerError with the first cause

  void add(NcclCommunicator* communicator);
  void remove(NcclCommunicator* communicator);
  CommunicatorEnds& ends() { return ends_; }

  // Stops the watching thread, aborts the remaining communicators, and waits until all have ended. No call
  // may follow.
  void close();

 private:
  void watch();
  void look_at_communicators();
  void remember(const std::string& cause);
  void abort_the_rest();
  void wait_for_ends();

  Backend& base_;
  const NcclOptions options_;
  const NcclDevice device_;
  SlowWaitNotices notices_;
  std::unique_ptr<ProcessGroup> everyone_;  // all ranks; used by the watching thread, and by close() after it
  Work failure_elsewhere_;                  // not done before close(); done() throws if any rank has failed

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<NcclCommunicator*> communicators_;
  bool closing_ = false;
  FirstFailure failure_;
  CommunicatorEnds ends_;
  std::thread watcher_;
};

}  // namespace gantry
