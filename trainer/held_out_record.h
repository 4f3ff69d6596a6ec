// The lowest held-out loss of a run so far: what the best checkpoint and an early end go by.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <optional>

namespace gantry {

class HeldOutRecord {
 public:
  // An evaluation as of `step`; one of a step that was noted already (a run that goes on repeats it) counts once. A
  // loss that is no number is not lower than any.
  void note(std::int64_t step, double loss);

  std::optional<std::int64_t> best_step() const { return best_step_; }
  double best_loss() const { return best_loss_; }
  std::int64_t since_best() const { return since_best_; }  // evaluations after the best one

  // For checkpoints; null before the first evaluation. What is no such value begins anew.
  nlohmann::json state() const;
  void restore(const nlohmann::json& state);

 private:
  std::optional<std::int64_t> best_step_;
  double best_loss_ = std::numeric_limits<double>::infinity();
  std::int64_t since_best_ = 0;
  std::int64_t last_step_ = -1;
};

}  // namespace gantry
