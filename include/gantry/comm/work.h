// A pending communication. Copies share it. The destructor of the last copy finishes it as wait() does, so that no
// result is lost and no other rank waits for this one; what goes wrong there ends the job, and later operations throw
// it. While an exception unwinds the stack it does not wait, since the other ranks may be waiting for this one: the
// operation is then left to its group.
#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include <ATen/record_function.h>

#include "gantry/tensors/tensor.h"

namespace gantry {

class Work {
 public:
  // What a backend implements for one operation. It may be used again for another one once no Work has it.
  class State {
   public:
    virtual ~State() = default;
    virtual bool done() = 0;  // makes progress, does not block; rethrows a failure
    virtual void
    wait() = 0;  // blocks until done, at most the group's deadline; PeerError that says who waited for what
    virtual torch::Tensor result() { return {}; }
    // The last Work that had it is gone, and nobody has seen it done.
    virtual void dropped() { wait(); }

   private:
    friend class Work;
    std::atomic<int> works_{0};
    std::atomic<bool> seen_{false};  // somebody has waited, or was told that it is done
  };

  Work() = default;  // done
  explicit Work(std::shared_ptr<State> state) : state_(std::move(state)) {
    if (state_->works_.fetch_add(1, std::memory_order_relaxed) == 0)
      state_->seen_.store(false, std::memory_order_relaxed);
  }
  Work(const Work& other) : state_(other.state_) {
    if (state_) state_->works_.fetch_add(1, std::memory_order_relaxed);
  }
  Work(Work&& other) noexcept = default;
  Work& operator=(Work other) noexcept {
    state_.swap(other.state_);
    return *this;
  }
  ~Work() {
    if (state_ && state_->works_.fetch_sub(1, std::memory_order_acq_rel) == 1 &&
        !state_->seen_.load(std::memory_order_relaxed))
      finish_dropped();
  }

  bool done() {
    if (!state_) return true;
    if (!state_->done()) return false;
    state_->seen_.store(true, std::memory_order_relaxed);
    return true;
  }
  void wait() {
    if (!state_) return;
    RECORD_FUNCTION("gantry::wait", std::vector<c10::IValue>{});  // seen by profilers
    state_->seen_.store(true, std::memory_order_relaxed);
    state_->wait();
  }
  // Waits; of a recv the tensor received (read-only: its storage may be the sender's; undefined if an absent one was
  // sent).
  torch::Tensor result() {
    wait();
    return state_ ? state_->result() : torch::Tensor();
  }

 private:
  void finish_dropped() noexcept {
    if (std::uncaught_exceptions() > 0) return;
    try {
      state_->dropped();
    } catch (...) {
      // The job has failed: the group's next operation says why.
    }
  }

  std::shared_ptr<State> state_;
};

}  // namespace gantry
