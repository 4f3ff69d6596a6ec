// A pending communication operation. Copies share it. The destructor of the last copy completes it like wait(), so that
// no result is lost and no other rank has to wait for this one. If it fails there, the job ends, and later operations
// throw the error. While an exception unwinds the stack, the destructor does not wait, because other ranks may be
// waiting for this one; the group then keeps the operation.
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
  // The implementation of an operation by a backend. It can be reused for another operation once no Work refers to it.
  class State {
   public:
    virtual ~State() = default;
    virtual bool done() = 0;  // makes progress, does not block; rethrows a failure
    // Blocks until the operation is done. Throws PeerError, with the rank and the operation, after the group's
    // deadline.
    virtual void wait() = 0;
    virtual torch::Tensor result() { return {}; }
    // Called when the last Work handle is destroyed before the operation was seen to complete.
    virtual void dropped() { wait(); }

   private:
    friend class Work;
    std::atomic<int> works_{0};
    std::atomic<bool> seen_{false};  // a caller has waited for it, or done() has returned true
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
    RECORD_FUNCTION("gantry::wait", std::vector<c10::IValue>{});  // for profilers
    state_->seen_.store(true, std::memory_order_relaxed);
    state_->wait();
  }
  // Waits and returns the received tensor of a recv(). Do not modify it: its storage may be shared with the sender.
  // Undefined if an absent tensor was sent.
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
      // The job has failed: the next operation of the group throws the reason.
    }
  }

  std::shared_ptr<State> state_;
};

}  // namespace gantry
