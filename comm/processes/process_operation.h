// An operation between processes, and how a rank waits for it.
#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "gantry/comm/processes/process_engine.h"
#include "gantry/comm/work.h"

namespace gantry {

// A sequence of phases, each some requests. A subclass posts the next phase in advance().
class ProcessOperation : public Work::State {
 public:
  explicit ProcessOperation(std::shared_ptr<ProcessEngine> engine) : engine_(std::move(engine)) {}

  // World ranks, or members, that something is still to come from.
  std::vector<int> missing() const;
  bool done() final;
  void wait() final;

 protected:
  // Called when no request of this is under way, first by post(), by whichever thread: ends the phase before and posts
  // the next one by engine().send and receive; true when there is none. A polled one is called at any time.
  virtual bool advance() = 0;
  virtual bool polled() const { return false; }
  // What the deadline's message says was awaited. `missing`: peers that something is still to come from.
  virtual std::string describe_pending(const std::vector<int>& missing) = 0;
  // Names the operation in the error of a broken connection with `peer`.
  virtual std::string describe_wait(int peer) { return describe_pending({peer}); }
  // World ranks without whose part it can't end.
  virtual std::vector<int> awaited_ranks(const std::vector<int>& /*missing*/) { return {}; }
  // A message of another size than expected came.
  virtual std::string describe_mismatch(int peer, std::int64_t expected, std::int64_t received) = 0;
  // Looks for a sign that it can never finish; "" if there is none. Called now and then while waiting.
  virtual std::string find_mismatch(const std::vector<int>& /*missing*/) { return ""; }
  // Once, in the caller's thread, when all has come.
  virtual void finish() {}

  ProcessEngine& engine() { return *engine_; }
  int requests() const { return outstanding_; }
  bool finished() const { return finished_.load(std::memory_order_acquire); }
  // As new, to be posted again. Only when it is finished and nobody else holds it.
  void restart();

 private:
  friend class ProcessEngine;
  bool complete();
  // Guarded by the engine's mutex. What is waited for, and from whom; PeerError, which ends the whole job, where one of
  // those has ended its work, or at the deadline.
  std::string awaited() { return describe_pending(engine_->missing_peers(*this)); }
  void search_mismatch();
  void search_ended();
  void end_late();
  void end_job(const std::string& cause);

  std::shared_ptr<ProcessEngine> engine_;
  int outstanding_ = 0;         // requests
  std::exception_ptr failure_;  // set before finished_
  std::atomic<bool> finished_{false};
  bool completed_ = false;
};

}  // namespace gantry
