// One NCCL communicator with a stream of its own, on which its operations run in the order they were issued.
//
// Communicators are nonblocking (ncclConfig_t::blocking = 0): a call that needs its peers returns at once and is asked
// until it is through, so that the deadline and an abort reach it.
//
// Shared between threads, and guarded: the communicator, `under_way_` and `registered_` by `mutex_`; what an operation
// holds, and how it ended, by its own mutex. The watching thread looks and aborts; one thread at a time issues.
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

// Something that a communicator's stream does, and the event behind it. Keeps the memory it works on until it is done.
class NcclOperation final : public DeviceEnd, public std::enable_shared_from_this<NcclOperation> {
 public:
  NcclOperation(const NcclDevice& device, std::vector<c10::Storage> held, std::function<std::string()> what)
      : event_(device.new_event()),
        posted_on_(device.current_stream()),
        held_(std::move(held)),
        what_(std::move(what)) {}

  // Before it is issued: it comes after what that event is behind.
  void follow(c10::Event begins) { begins_.emplace(std::move(begins)); }
  void issued_on(const c10::Stream& stream);
  // What was on the poster's stream before it is done: from here on it takes its own time.
  bool may_have_begun() const { return !begins_ || begins_->query(); }
  bool finished() const;  // never of one that was aborted, or whose issue was given up
  // What the current stream is given from now on comes after it. The host does not wait.
  void precede(const c10::Stream& current);
  void release();
  // For its communicator, once: whether it is done or about to be aborted.
  void end(bool done);
  void when_ended(std::function<void(bool done)> then) override;
  std::string describe() const { return what_(); }

 private:
  enum class State { kUnderWay, kDone, kAborted };

  c10::Event event_;
  std::atomic<bool> issued_{false};
  std::optional<c10::Event> begins_;
  const c10::Stream posted_on_;
  mutable std::mutex mutex_;  // guards the following three
  std::vector<c10::Storage> held_;
  State state_ = State::kUnderWay;
  std::vector<std::function<void(bool)>> listeners_;
  const std::function<std::string()> what_;
};

// Its members, as messages name them: "group 'tp' with rank 1 (...), rank 2 (...)".
struct NcclMembers {
  std::string name;
  std::vector<int> ranks;  // of the world
  int rank = 0;            // this one, among them
};

// The last one that this thread let its current stream wait for, once; null if there is none, or nobody has it any
// more.
std::shared_ptr<NcclOperation> take_last_preceding();

ncclUniqueId new_unique_id();

class NcclCommunicator {
 public:
  // Between ncclGroupStart and ncclGroupEnd; gives the first code that is not a success.
  using Calls = std::function<ncclResult_t(ncclComm_t communicator, cudaStream_t stream)>;

  enum class Use { kCollectives, kMessages };
  // Collective over the members, within the job's deadline.
  NcclCommunicator(std::shared_ptr<NcclJob> job, NcclMembers members, const ncclUniqueId& id,
                   Use use = Use::kCollectives);
  // Waits for what is under way, unless something has failed: then it aborts.
  ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  const std::string& name() const { return members_.name; }
  const c10::Stream& stream() const { return stream_.get(); }

  // Issues `calls` on the stream, behind all that the current stream holds by now if `after_current`.
  std::shared_ptr<NcclOperation> issue(std::vector<c10::Storage> held, std::function<std::string()> what,
                                       const Calls& calls, bool after_current = true);

  // Tells NCCL of memory of its own allocator, until deregister() with the handle that this gives, or the
  // communicator's end. Every member registers alike.
  void* register_memory(void* begin, std::size_t bytes);
  void deregister(void* handle);

  // For the watching thread. What is wrong, as the line of an error; "" if nothing is.
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
  // `what`: description of the operation that is waited for, called under the lock when it is reported.
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
  Clock::time_point oldest_since_;         // since when the first of under_way_ takes its own time
  bool oldest_reported_ = false;           // that it takes long
  // Since when a member is known to have ended its work while the first of under_way_ was not done.
  std::optional<Clock::time_point> left_since_;
};

}  // namespace gantry
