// Beam search for one prompt: Graves, arXiv 1211.3711, with the length penalty of Wu et al., arXiv
// 1609.08144. Scores, the length penalty and the end of the search are those of generate() in transformers.
#pragma once

#include <functional>
#include <vector>

#include "gantry/generation/plan.h"

namespace gantry::generation {

// A candidate: the text of a beam and one more token.
struct Continued {
  double log_prob = 0;  // summed over the new tokens
  std::int64_t beam = 0;
  std::int64_t token = 0;
};

class BeamSearch {
 public:
  BeamSearch(const Plan& plan, std::int64_t prompt);

  // The summed log-probabilities of the running beams, best first. Initially all beams are the prompt, and
  // only the first one counts.
  const std::vector<double>& scores() const { return scores_; }
  // Number of best candidates that advance() needs, so that num_beams beams continue even if all others stop.
  std::int64_t candidates() const;
  // Advances the search by one token. `best`: candidates() candidates, best first. `new_tokens_of` returns
  // the new tokens of a running beam. Returns the num_beams candidates that continue.
  std::vector<Continued> advance(const std::vector<Continued>& best,
                                 const std::function<TokenIds(std::int64_t beam)>& new_tokens_of);
  bool is_done() const { return is_done_; }
  // The best num_return_sequences finished sequences, best first.
  std::vector<GeneratedSequence> sequences() const;

 private:
  bool is_full() const { return static_cast<int>(finished_.size()) == plan_.options.num_beams; }
  void finish(const Continued& candidate, const std::function<TokenIds(std::int64_t beam)>& new_tokens_of);
  bool can_improve() const;

  const Plan& plan_;
  std::int64_t prompt_;
  std::vector<double> scores_;
  std::vector<GeneratedSequence> finished_;  // at most num_beams, best first
  std::int64_t new_tokens_ = 0;
  bool may_improve_ = true;
  bool is_done_ = false;
};

}  // namespace gantry::generation
