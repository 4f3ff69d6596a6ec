// Counts the memory of tensors that one thread allocates on one kind of device: what a rank holds there, also where
// ranks are threads of one process. Memory that another thread frees (a message that was handed over) is taken off the
// count of the one that allocated it.
#pragma once

#include <cstdint>
#include <memory>

#include <c10/core/DeviceType.h>

namespace c10 {
struct MemoryReportingInfoBase;
}

namespace gantry {

class MemoryMeter {
 public:
  // Counts this thread's allocations from now on, for its lifetime. What was allocated before is not counted.
  explicit MemoryMeter(c10::DeviceType counted = c10::DeviceType::CPU);
  ~MemoryMeter();
  MemoryMeter(const MemoryMeter&) = delete;
  MemoryMeter& operator=(const MemoryMeter&) = delete;

  std::int64_t bytes() const;  // held now
  std::int64_t peak_bytes() const;
  void reset_peak();  // to what is held now

  // What the calling thread's innermost meter is told of goes to `other` too, until it is null again.
  static void set_secondary_reporter(c10::MemoryReportingInfoBase* other);

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace gantry
