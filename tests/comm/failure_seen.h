// For jobs whose ranks are threads: a rank waits outside communication until the body of another rank has
// failed, however long that takes.
#pragma once

#include <atomic>

namespace gantry::testing {

class FailureSeen {
 public:
  // Runs the body of a rank. If it throws, all calls of wait() return.
  template <class Body>
  void watch(Body body) {
    try {
      body();
    } catch (...) {
      seen_ = true;
      seen_.notify_all();
      throw;
    }
  }
  void wait() const { seen_.wait(false); }

 private:
  std::atomic<bool> seen_{false};
};

}  // namespace gantry::testing
