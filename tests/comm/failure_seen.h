// For jobs whose ranks are threads: a rank that stands aside until another one's work has failed, however long that
// takes.
#pragma once

#include <atomic>

namespace gantry::testing {

class FailureSeen {
 public:
  // A rank's work. What it throws is seen from then on.
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
