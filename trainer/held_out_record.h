// The lowest held-out loss of a run so far, which decides the best checkpoint and early stopping.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <optional>

namespace gantry {

class HeldOutRecord {
 public:
  // Records the evaluation after `step`. A step that is already recorded is ignored (a resumed run repeats
  // it). A loss that is NaN is never the lowest.
  void note(std::int64_t step, double loss);

  std::optional<std::int64_t> best_step() const { return best_step_; }
  double best_loss() const { return best_loss_; }
  std::int64_t since_best() const { return since_best_; }  // evaluations after the best one

  // The state for checkpoints; null before the first evaluation. restore() starts from scratch if the value
  // is not a state of this class.
  nlohmann::json state() const;
  void restore(const nlohmann::json& state);

 private:
  std::optional<std::int64_t> best_step_;
  double best_loss_ = std::numeric_limits<double>::infinity();
  std::int64_t since_best_ = 0;
  std::int64_t last_step_ = -1;
};

}  // namespace gantry
