// Rewards of pairs of completions in training by preferences.
#pragma once

namespace gantry {

// Means over pairs, by TRL's names. A reward is beta times the log-probability of a completion relative to the
// reference; without a reference beta times its mean log-probability per token.
struct RewardMetrics {
  double chosen = 0, rejected = 0;                     // rewards/chosen, rewards/rejected
  double accuracy = 0;                                 // rewards/accuracies: fraction of pairs with margins above 0
  double margin() const { return chosen - rejected; }  // rewards/margins
};

}  // namespace gantry
