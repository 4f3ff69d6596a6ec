// An NCCL communicator with its own stream, on which its operations run in the order in which they were
// issued.
//
// Communicators are nonblocking (ncclConfig_t::blocking = 0). A call that needs its peers returns at once and
// is polled until it is complete, so that the deadline and an abort apply to it.
//
// Shared between threads: the communicator, `under_way_` and `registered_` are guarded by `mutex_`. The held
// memory and the state of an operation are guarded by the operation's own mutex. The watching thread checks
// and aborts; only one thread at a time issues operations.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <nccl.h>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "gantry/comm/nccl/nccl_job.h"

namespace gantry {

// An operation on a communicator's stream, and the event that marks its end. Keeps the memory that it uses
// until it is done.
class NcclOperation final : public DeviceEnd, public std::enable_shared_from_this<NcclOperation> {
 public:
  NcclOperation(const NcclDevice& device, std::vector<c10::Storage> held, std::function<std::string()> what)
      : event_(device.new_event()),
        posted_on_(device.current_stream()),
        held_(std::move(held)),
        what_(std::move(what)) {}

  // Called before the operation is issued: the operation starts after this event.
  void follow(c10::Event begins) { begins_.emplace(std::move(begins)); }
  void issued_on(const c10::Stream& stream);
  // True if the work on the poster's stream that precedes the operation is done. From then on the operation's
  // own time counts.
  bool may_have_begun() const { return !begins_ || begins_->query(); }
  bool finished() const;  // never true if it was aborted, or if issuing it failed
  // Makes later work on the current stream wait for the operation. The host does not wait.
  void precede(const c10::Stream& current);
  void release();
  // Called once by its communicator, when the operation is done or about to be aborted.
  void end(bool done);
  void when_ended(std::function<void(bool done)> then) override;
  std::string describe() const { return what_(); }

 private:
  enum class State { kUnderWay, kDone, kAborted };

  c10::Event event_;
  std::atomic<bool> issued_{false};
  std::optional<c10::Event> begins_;
  const c10::Stream posted_on_;
  mutable std::mutex mutex_;  // guards the following three members
  std::vector<c10::Storage> held_;
  State state_ = State::kUnderWay;
  std::vector<std::function<void(bool)>> listeners_;
  const std::function<std::string()> what_;
};

// The members of a communicator. Messages name them as "group 'tp' with rank 1 (...), rank 2 (...)".
struct NcclMembers {
  std::string name;
  std::vector<int> ranks;  // world ranks
  int rank = 0;            // the index of this rank in `ranks`
};

// Returns, once, the last operation for which this thread made its current stream wait. Null if there is
// none, or if the operation no longer exists.
std::shared_ptr<NcclOperation> take_last_preceding();

ncclUniqueId new_unique_id();

class NcclCommunicator {
 public:
  // Called between ncclGroupStart and ncclGroupEnd. Returns the first code that is not a success.
  using Calls = std::function<ncclResult_t(ncclComm_t communicator, cudaStream_t stream)>;

  enum class Use { kCollectives, kMessages };
  // Collective over the members, with the job's deadline.
  NcclCommunicator(std::shared_ptr<NcclJob> job, NcclMembers members, const ncclUniqueId& id,
                   Use use = Use::kCollectives);
  // Waits for pending operations. Aborts them if something has failed.
  ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  const std::string& name() const { return members_.name; }
  const c10::Stream& stream() const { return stream_.get(); }

  // Issues `calls` on the stream. If `after_current`, they wait for all work that is on the current stream
  // now.
  std::shared_ptr<NcclOperation> issue(std::vector<c10::Storage> held, std::function<std::string()> what,
                                       const Calls& calls, bool after_current = true);

  // Registers memory of NCCL's own allocator, until deregister() with the returned handle, or until the end
  // of the communicator. Every member must register the same sizes in the same order.
  void* register_memory(void* begin, std::size_t bytes);
  void deregister(void* handle);

  // Called by the watching thread. Returns the problem as an error line, "" if there is none.
  std::string find_trouble();
  void abort();

 private:
  using Clock = std::chrono::steady_clock;
  using Operations = std::deque<std::shared_ptr<NcclOperation>>;

  void begin(const ncclUniqueId& id, Use use);
  void finalize();
  void deregister_all(std::unique_lock<std::mutex>& lock);
  void end_with(ncclResult_t (*call)(ncclComm_t));
  void require_open() const;
  // `what`: description of the awaited operation, called under the lock when it is reported.
  void await_call(std::unique_lock<std::mutex>& lock, ncclResult_t code, const std::function<std::string()>& what);
  void drop_finished();
  void begin_oldest();
  std::string find_ended();
  std::string describe_error(ncclResult_t code) const;

  const std::shared_ptr<NcclJob> job_;
  const NcclMembers members_;
  const NcclStream stream_;
  std::mutex mutex_;
  ncclComm_t communicator_ = nullptr;  // null once its end has begun
  Operations under_way_;
  std::weak_ptr<Operations> left_behind_;  // pending operations of an end that has begun; freed after it
  std::set<void*> registered_;             // handles
  // Start time of the first operation of under_way_, without its wait for the poster's stream.
  Clock::time_point oldest_since_;
  bool oldest_reported_ = false;  // a warning was printed about its duration
  // Time at which a member was first known to have ended its work while the first operation of under_way_ was
  // pending.
  std::optional<Clock::time_point> left_since_;
};

}  // namespace gantry
