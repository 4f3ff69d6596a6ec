// Rewards of completions in training by preferences.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace gantry {

// Means over the completions of a step or of the held-out samples, by TRL's names. A reward is beta times the
// log-probability of a completion relative to the reference; without a reference beta times its mean log-probability
// per token; of a reward model the score.
struct RewardMetrics {
  std::optional<double> chosen, rejected;  // rewards/chosen, rewards/rejected; kto: desirable, undesirable, if any
  std::optional<double> accuracy;          // rewards/accuracies: fraction of pairs with margins above 0
  std::optional<double> divergence;        // kl: estimated divergence from the reference, for kto
  std::optional<double> margin() const {   // rewards/margins
    return chosen && rejected ? std::optional(*chosen - *rejected) : std::nullopt;
  }
};

// The values that exist, with their names.
inline std::vector<std::pair<std::string, double>> named_values(const RewardMetrics& rewards) {
  std::vector<std::pair<std::string, double>> values;
  if (rewards.chosen) values.emplace_back("rewards/chosen", *rewards.chosen);
  if (rewards.rejected) values.emplace_back("rewards/rejected", *rewards.rejected);
  if (rewards.margin()) values.emplace_back("rewards/margins", *rewards.margin());
  if (rewards.accuracy) values.emplace_back("rewards/accuracies", *rewards.accuracy);
  if (rewards.divergence) values.emplace_back("kl", *rewards.divergence);
  return values;
}

}  // namespace gantry
