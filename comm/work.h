// A pending communication. Copies share it; dropping the last handle of an unfinished one is an error of the caller's
// that is caught by finishing it first.
#pragma once

#include <memory>
#include <vector>

#include <ATen/record_function.h>
#include <torch/torch.h>

namespace gantry {

class Work {
 public:
  // What a backend implements for one operation.
  class State {
   public:
    virtual ~State() = default;
    virtual bool done() = 0;  // makes progress, does not block; rethrows a failure
    virtual void
    wait() = 0;  // blocks until done, at most the group's deadline; PeerError that says who waited for what
    virtual torch::Tensor result() { return {}; }
  };

  Work() = default;  // done
  explicit Work(std::shared_ptr<State> state) : state_(std::move(state)) {}

  bool done() { return !state_ || state_->done(); }
  void wait() {
    if (!state_) return;
    RECORD_FUNCTION("gantry::wait", std::vector<c10::IValue>{});  // seen by profilers
    state_->wait();
  }
  // Waits; of a recv the tensor received (read-only: its storage may be the sender's; undefined if an absent one was
  // sent).
  torch::Tensor result() {
    wait();
    return state_ ? state_->result() : torch::Tensor();
  }

 private:
  std::shared_ptr<State> state_;
};

}  // namespace gantry
