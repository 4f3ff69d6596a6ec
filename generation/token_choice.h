// Chooses the tokens of a group of prompts, on the last stage. All tp ranks make the same choices.
#pragma once

#include <optional>

#include "gantry/generation/beam_search.h"
#include "gantry/generation/text_group.h"
#include "gantry/generation/token_scores.h"
#include "gantry/plugins/criterion.h"

namespace gantry::generation {

class TokenChoice {
 public:
  // `prompts`: the number of prompts. `first_prompt`: the index of the first one in the call. The plan must
  // outlive this object.
  TokenChoice(const Plan& plan, SplitDim split, std::int64_t first_prompt, std::int64_t prompts);

  // Chooses the next token of each sequence. `logits`: [rows, this rank's columns], for the token after each
  // row's text. Throws NumericalError if the largest logit of a running sequence is not finite. Collective
  // over tp.
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
