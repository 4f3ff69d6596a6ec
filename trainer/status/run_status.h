// A run's latest numbers, handed from the training loop to whoever shows them.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "gantry/core/expert_load.h"

namespace gantry {

// As a line of metrics.jsonl has them. Before the first step `step` is 0 and the rest says nothing.
struct RunNumbers {
  std::int64_t step = 0;
  std::int64_t steps = 0;  // of the whole run
  double loss = 0;
  double grad_norm = 0;  // before clipping
  double lr = 0;
  std::int64_t tokens = 0;  // counted in this step
  double step_seconds = 0;
  double bubble = 0;                            // share of the pipeline's time that was idle
  double predicted_bubble = 0;                  // the same as simulated
  std::vector<std::int64_t> peak_memory_bytes;  // of tensors, by rank
  ExpertLoads experts = {};                     // of models with experts
  double all_to_all_bytes = 0, all_to_all_seconds = 0;
  std::int64_t total_tokens = 0;  // counted since this process began
  std::string layout;             // "pp 2, dp 1, tp 2"

  double tokens_per_second() const { return step_seconds > 0 ? static_cast<double>(tokens) / step_seconds : 0; }
};

// Shared between the training loop, which writes, and a server's thread, which reads; guarded by its mutex.
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
