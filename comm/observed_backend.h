// A backend whose groups report every operation to an observer: the rank's flight recorder, or a meter. It
// forwards all calls to the backend that it wraps, including name, device and failures. Several can be
// nested.
#pragma once

#include <memory>

#include "gantry/comm/world.h"

namespace gantry {

class ObservedBackend final : public Backend {
 public:
  // `inner` is not owned. Groups and pending operations also hold the observer.
  ObservedBackend(Backend& inner, std::shared_ptr<OperationObserver> observer)
      : inner_(inner), observer_(std::move(observer)) {}

  const char* name() const override { return inner_.name(); }
  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  torch::Device device() const override { return inner_.device(); }
  std::shared_ptr<DeviceEnd> take_end() const override { return inner_.take_end(); }
  std::unique_ptr<ProcessGroup> make_group(const std::string& label, const std::vector<int>& ranks) override;
  void abort(const std::string& reason) override { inner_.abort(reason); }
  bool has_ended(int rank) const override { return inner_.has_ended(rank); }

 private:
  Backend& inner_;
  std::shared_ptr<OperationObserver> observer_;
};

}  // namespace gantry
