// Counts the memory of tensors that one thread allocates: what a rank holds, also where ranks are threads of one
// process. Memory that another thread frees (a message that was handed over) is taken off the count of the one that
// allocated it.
#pragma once

#include <cstdint>
#include <memory>

namespace gantry {

class MemoryMeter {
 public:
  // Counts this thread's allocations from now on, for its lifetime. What was allocated before is not counted.
  MemoryMeter();
  ~MemoryMeter();
  MemoryMeter(const MemoryMeter&) = delete;
  MemoryMeter& operator=(const MemoryMeter&) = delete;

  std::int64_t bytes() const;  // held now
  std::int64_t peak_bytes() const;
  void reset_peak();  // to what is held now

  // What the calling thread's innermost meter counts as held now; 0 without one.
  static std::int64_t bytes_of_this_thread();

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace gantry
