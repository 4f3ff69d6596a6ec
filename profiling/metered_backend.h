// A backend whose groups count what a rank communicates: calls, bytes and time, by the axis of the group.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gantry/comm/device_backend.h"

namespace gantry {

// What one rank handed in of one operation, and how long its thread was busy with it or waited for it.
struct CommunicationCount {
  std::string axis;  // the group's label: "tp", "pp+dp"
  std::string operation;
  std::int64_t calls = 0;
  std::int64_t bytes = 0;  // of the tensor sent, received or reduced; what a rank adds to a gather
  double seconds = 0;
};

class MeteredBackend final : public DeviceBackend {
 public:
  // `inner` is not owned. Counts nothing before the first resume().
  explicit MeteredBackend(Backend& inner);
  ~MeteredBackend() override;

  const char* name() const override { return inner_.name(); }
  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  torch::Device device() const override { return device_of(inner_); }
  std::shared_ptr<DeviceEnd> take_end() const override { return take_end_from(inner_); }
  std::unique_ptr<ProcessGroup> make_group(const std::string& label, const std::vector<int>& ranks) override;
  void abort(const std::string& reason) override { inner_.abort(reason); }
  bool has_ended(int rank) const override { return inner_.has_ended(rank); }

  void resume();
  void pause();
  // What was counted, by axis and operation; without those that never ran.
  std::vector<CommunicationCount> counts() const;

  class Meter;

 private:
  Backend& inner_;
  std::shared_ptr<Meter> meter_;  // groups and pending operations hold it too
};

}  // namespace gantry
