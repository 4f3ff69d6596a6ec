// A run's latest numbers, which the training loop passes to the status server.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "gantry/core/expert_load.h"

namespace gantry {

// The numbers of a line of metrics.jsonl. Before the first step, `step` is 0 and the other numbers of a step
// are unset.
struct RunNumbers {
  std::int64_t step = 0;
  std::int64_t steps = 0;  // steps of the complete run
  double loss = 0;
  double grad_norm = 0;  // before clipping
  double lr = 0;
  std::int64_t tokens = 0;  // counted in this step
  double step_seconds = 0;
  double bubble = 0;                            // share of the pipeline's time that was idle
  double predicted_bubble = 0;                  // the same share in the simulation
  std::vector<std::int64_t> peak_memory_bytes;  // peak bytes of tensors, by rank
  ExpertLoads experts = {};                     // empty for models without experts
  double all_to_all_bytes = 0, all_to_all_seconds = 0;
  std::int64_t total_tokens = 0;  // counted since this process started
  std::string layout;             // "pp 2, dp 1, tp 2"

  double tokens_per_second() const { return step_seconds > 0 ? static_cast<double>(tokens) / step_seconds : 0; }
};

// The latest numbers, guarded by a mutex: the training loop writes them, and the server's thread reads them.
class RunStatus {
 public:
  RunNumbers latest() const {
    const std::lock_guard lock(mutex_);
    return numbers_;
  }
  void update(RunNumbers numbers) {
    const std::lock_guard lock(mutex_);
    numbers_ = std::move(numbers);
  }

 private:
  mutable std::mutex mutex_;
  RunNumbers numbers_;
};

}  // namespace gantry
