// Losses of preferences: direct preference optimization and its relatives, and reward models.
//
// Objectives of pairs (all but kto): a sample has the prompt with the chosen completion, followed by the prompt with
// the rejected one, as two documents that do not see each other. Its entries are input_ids, labels (aligned; -100
// except for the completions) and document_ids [samples, tokens], with kChosen and kRejected. For orpo, prompt_labels
// [samples, tokens] are the labels of the other tokens of the chosen text. For reward, pooled_tokens [samples, 2] are
// the places of the last tokens of both texts (the model pools the last token up to there that is not its padding
// token), and margins [samples] are their margins.
//
// kto: a sample has one completion. Its entries are input_ids, labels, desirable [samples] (0 or 1), and kl_input_ids
// and kl_labels, the prompt with the completion of another sample.
//
// With a reference, sample_numbers [samples] has the number of the sample in its data set. A sample of a held-out data
// set has the number -1 - i.
#pragma once

#include <cstdint>
#include <memory>

#include "gantry/core/config.h"
#include "gantry/core/reward_metrics.h"
#include "gantry/plugins/criterion.h"

namespace gantry {

struct ObjectiveParts;

inline constexpr std::int64_t kChosen = 0, kRejected = 1;

// Log-probabilities of the completions under the reference model: the sums over their tokens.
struct ReferenceScores {
  // [trained + held-out samples, 2] float64: chosen and rejected; for kto the completion of the sample and that of the
  // other one.
  torch::Tensor scores;
  std::int64_t trained = 0;  // number of samples in the data set that is trained on
};

// Adds up the rewards of a rank's completions.
class RewardMeter {
 public:
  void add_pairs(const torch::Tensor& rewards);                                   // [pairs, 2]
  void add_single(const torch::Tensor& rewards, const torch::Tensor& desirable);  // [samples] each
  void clear() { sums_ = torch::Tensor(); }
  // The means since clear() on all ranks of `world`. Collective.
  RewardMetrics means(ProcessGroup& world) const;

 private:
  void add(const torch::Tensor& sums);
  torch::Tensor sums_;  // [6] float64: chosen and their number, rejected and their number, correct pairs, pairs
};

// The loss of `objective`, as a mean over samples, computed as in TRL. Throws UsageError if a part is missing that
// the objective needs. Supports outputs that are sharded over tp, and context parallelism.
Criterion preference_loss(const ObjectiveConfig& objective, const ObjectiveParts& parts);

// A criterion that writes the log-probabilities of its completions into the columns of `scores` from `column` on, and
// returns a loss of 0.
Criterion preference_scores(std::shared_ptr<ReferenceScores> scores, std::int64_t column = 0);

// The criterion of the estimated divergence: the mean log-probability of the completions relative to the second column
// of the reference. Its batch has kl_input_ids and kl_labels as input_ids and labels.
Criterion divergence_from(std::shared_ptr<const ReferenceScores> reference);

}  // namespace gantry
