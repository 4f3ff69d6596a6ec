// Counts the memory of tensors that one thread allocates on one kind of device: the memory of a rank, also if ranks are
// threads of one process. Memory that another thread with a meter frees (a message that was handed over) is subtracted
// from the count of the thread that allocated it. Autograd's threads, the prefetching thread and those that move memory
// report to the meter of the rank that they work for. Memory that a thread frees with neither a meter nor FreesCounted
// stays counted until LibTorch's allocator uses its address again.
#pragma once

#include <cstdint>
#include <memory>

#include <c10/core/DeviceType.h>
#include <c10/util/ThreadLocalDebugInfo.h>

namespace c10 {
struct MemoryReportingInfoBase;
}

namespace gantry {

class MemoryMeter {
 public:
  // Counts allocations of this thread during the lifetime of the object. Earlier allocations are not counted.
  explicit MemoryMeter(c10::DeviceType counted = c10::DeviceType::CPU);
  ~MemoryMeter();
  MemoryMeter(const MemoryMeter&) = delete;
  MemoryMeter& operator=(const MemoryMeter&) = delete;

  std::int64_t bytes() const;  // bytes held now
  std::int64_t peak_bytes() const;
  void reset_peak();  // resets the peak to the bytes held now

  // The calling thread's innermost meter also reports to `other`, until `other` is null again.
  static void set_secondary_reporter(c10::MemoryReportingInfoBase* other);

 private:
  class State;
  std::unique_ptr<State> state_;
};

// Subtracts the memory of devices other than the CPU that this thread frees, during the lifetime of the object, from
// the counts of the threads that allocated it. For threads without a meter, which serve a rank in the background.
class FreesCounted {
 public:
  FreesCounted();

 private:
  c10::DebugInfoGuard guard_;
};

}  // namespace gantry
