// Beam search for one prompt. Scores, the length penalty and the ends of the search are those of transformers'
// generate(); the search itself: Graves, arXiv 1211.3711, with the length penalty of Wu et al., arXiv 1609.08144.
#pragma once

#include <functional>
#include <vector>

#include "gantry/generation/plan.h"

namespace gantry::generation {

// A beam's text and one more token.
struct Continued {
  double log_prob = 0;  // summed over the new tokens
  std::int64_t beam = 0;
  std::int64_t token = 0;
};

class BeamSearch {
 public:
  BeamSearch(const Plan& plan, std::int64_t prompt);

  // The running beams' summed log probabilities, best first. At first all beams are the prompt, and only one counts.
  const std::vector<double>& scores() const { return scores_; }
  // So many of the best continuations are looked at, so that num_beams of them go on even if all others stop.
  std::int64_t candidates() const;
  // `best`: that many, best first; `new_tokens_of`: those of a running beam. Gives the ones that go on, num_beams.
  std::vector<Continued> advance(const std::vector<Continued>& best,
                                 const std::function<TokenIds(std::int64_t beam)>& new_tokens_of);
  bool is_done() const { return is_done_; }
  // The best num_return_sequences, best first.
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
