// Chooses the tokens of a group of prompts, on the last stage. All tp ranks choose alike.
#pragma once

#include <optional>

#include "gantry/generation/beam_search.h"
#include "gantry/generation/text_group.h"
#include "gantry/generation/token_scores.h"
#include "gantry/plugins/criterion.h"

namespace gantry::generation {

class TokenChoice {
 public:
  // Of `prompts` prompts, the first of which is number `first_prompt` of the call. The plan must outlive it.
  TokenChoice(const Plan& plan, SplitDim split, std::int64_t first_prompt, std::int64_t prompts);

  // From each row's logits [rows, this rank's columns] for the token after its text. NumericalError where the largest
  // logit of a sequence that goes on is not finite. Collective over tp.
  Decision choose(const torch::Tensor& logits, const TextGroup& group);
  std::vector<GeneratedSequence> sequences() const;

 private:
  torch::Tensor scores_of(const torch::Tensor& logits, const TextGroup& group) const;
  bool goes_on(std::int64_t row) const;
  std::vector<std::int64_t> tokens_of(const std::vector<BestToken>& best, const TextGroup& group) const;
  Decision extended(const std::vector<std::int64_t>& tokens);
  std::vector<std::int64_t> drawn(const torch::Tensor& scores, const TextGroup& group) const;
  Decision best_beams(const torch::Tensor& log_probs, const TextGroup& group);

  const Plan& plan_;
  SplitDim split_;
  std::int64_t first_prompt_;
  std::vector<GeneratedSequence> rows_;  // without beams
  std::vector<BeamSearch> searches_;     // by prompt
};

}  // namespace gantry::generation
