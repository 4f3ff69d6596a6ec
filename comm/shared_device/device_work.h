// The Work of an operation that ends on the device: a wait makes the calling thread's stream wait for that
// end.
#pragma once

#include <memory>
#include <utility>

#include "gantry/comm/work.h"

namespace gantry {

// Operation: a ProcessOperation with passed(), which returns true when the device has completed it, and
// precede_current().
template <class Operation>
class DeviceWork final : public Work::State {
 public:
  explicit DeviceWork(std::shared_ptr<Operation> operation) : operation_(std::move(operation)) {}
  bool done() override {
    if (!operation_->done() || !operation_->passed()) return false;
    operation_->precede_current();
    return true;
  }
  void wait() override {
    operation_->wait();
    operation_->precede_current();
  }
  torch::Tensor result() override { return operation_->result(); }

 private:
  const std::shared_ptr<Operation> operation_;
};

}  // namespace gantry
