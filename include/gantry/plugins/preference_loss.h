// Losses of preferences between two completions: direct preference optimization and its relatives.
//
// A sample has a pair: the prompt with the chosen completion, followed by the prompt with the rejected one, as two
// documents that do not see each other. Its entries are input_ids, labels (aligned; -100 except for the completions)
// and document_ids [samples, tokens], with kChosen and kRejected, and sample_numbers [samples], the number of the pair
// in its data set. A pair of a held-out data set has the number -1 - i.
#pragma once

#include <cstdint>
#include <memory>

#include "gantry/core/config.h"
#include "gantry/core/reward_metrics.h"
#include "gantry/plugins/criterion.h"

namespace gantry {

inline constexpr std::int64_t kChosen = 0, kRejected = 1;

// Log-probabilities of the completions under the reference model: the sums over their tokens.
struct ReferenceScores {
  torch::Tensor scores;      // [trained + held-out pairs, 2] float64: chosen, rejected
  std::int64_t trained = 0;  // number of pairs in the data set that is trained on
};

// Adds up the rewards of a rank's pairs.
class RewardMeter {
 public:
  void add(const torch::Tensor& rewards);  // [pairs, 2]
  void clear() { sums_ = torch::Tensor(); }
  // The means over the pairs since clear() on all ranks of `world`. Collective.
  RewardMetrics means(ProcessGroup& world) const;

 private:
  torch::Tensor sums_;  // [4] float64: chosen, rejected, correct pairs, pairs
};

// The state of a run's loss of preferences.
struct PreferenceParts {
  std::shared_ptr<ReferenceScores> reference;  // null for objectives without a reference model
  std::shared_ptr<RewardMeter> rewards;        // null: rewards are not measured
};

// The loss of `objective`, as a mean over pairs, computed as in TRL. `reference` is required for objectives with a
// reference model. `meter`: receives the rewards; null: none. Supports outputs that are sharded over tp, and context
// parallelism.
Criterion preference_loss(const ObjectiveConfig& objective, std::shared_ptr<const ReferenceScores> reference = nullptr,
                          std::shared_ptr<RewardMeter> meter = nullptr);

// A criterion that writes the log-probabilities of its pairs into `scores`, and returns a loss of 0.
Criterion preference_scores(std::shared_ptr<ReferenceScores> scores);

}  // namespace gantry
