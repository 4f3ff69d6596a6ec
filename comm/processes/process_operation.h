// An operation between processes, and a rank's wait for it.
#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "gantry/comm/processes/process_engine.h"
#include "gantry/comm/work.h"

namespace gantry {

// A sequence of phases, each with some requests. A subclass posts the next phase in advance().
class ProcessOperation : public Work::State {
 public:
  explicit ProcessOperation(std::shared_ptr<ProcessEngine> engine) : engine_(std::move(engine)) {}

  // Returns the peers (world ranks or members) from which messages are still missing.
  std::vector<int> missing() const;
  bool done() final;
  void wait() final;

 protected:
  // Called when this operation has no request in flight: first by post(), later by any thread. Ends the last
  // phase and posts the next one by engine().send() and receive(). Returns true if there is none. For a
  // polled operation it can be called at any time.
  virtual bool advance() = 0;
  virtual bool polled() const { return false; }
  // Describes the wait in the error at the deadline. `missing`: peers from which messages are still missing.
  virtual std::string describe_pending(const std::vector<int>& missing) = 0;
  // Names the operation in the error of a broken connection with `peer`.
  virtual std::string describe_wait(int peer) { return describe_pending({peer}); }
  // Returns the world ranks without whose part the operation cannot end.
  virtual std::vector<int> awaited_ranks(const std::vector<int>& /*missing*/) { return {}; }
  // Returns the error for a message of another size than expected.
  virtual std::string describe_mismatch(int peer, std::int64_t expected, std::int64_t received) = 0;
  // Returns the reason if the operation can never finish; "" if none is found. Called from time to time while
  // waiting.
  virtual std::string find_mismatch(const std::vector<int>& /*missing*/) { return ""; }
  // Called once, in the caller's thread, when all requests are complete.
  virtual void finish() {}

  ProcessEngine& engine() { return *engine_; }
  int requests() const { return outstanding_; }
  bool finished() const { return finished_.load(std::memory_order_acquire); }
  // Prepares the operation to be posted again. Allowed only when it is finished and no other component holds
  // it.
  void restart();

 private:
  friend class ProcessEngine;
  bool complete();
  // These are called under the engine's mutex. awaited() describes the wait and the missing peers. The others
  // throw PeerError, which ends the job, if a missing peer has ended its work, or at the deadline.
  std::string awaited() { return describe_pending(engine_->missing_peers(*this)); }
  void search_mismatch();
  void search_ended();
  void end_late();
  void end_job(const std::string& cause);

  std::shared_ptr<ProcessEngine> engine_;
  int outstanding_ = 0;         // requests in flight
  std::exception_ptr failure_;  // set before finished_
  std::atomic<bool> finished_{false};
  bool completed_ = false;
};

}  // namespace gantry
