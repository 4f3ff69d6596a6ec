#include "gantry/generation/beam_search.h"

#include <algorithm>
#include <cmath>

namespace gantry::generation {
namespace {

constexpr double kNoBeam = -1e9;  // the score of a beam that does not count

}  // namespace

BeamSearch::BeamSearch(const Plan& plan, std::int64_t prompt)
    : plan_(plan), prompt_(prompt), scores_(plan.options.num_beams, kNoBeam) {
  scores_.front() = 0;
}

std::int64_t BeamSearch::candidates() const {
  const auto stops = static_cast<std::int64_t>(plan_.options.stop_tokens.size());
  return std::max<std::int64_t>(2, 1 + stops) * plan_.options.num_beams;
}

void BeamSearch::finish(const Continued& candidate, const std::function<TokenIds(std::int64_t beam)>& new_tokens_of) {
  TokenIds tokens = new_tokens_of(candidate.beam);
  tokens.push_back(candidate.token);
  const double length = std::pow(static_cast<double>(new_tokens_), plan_.options.length_penalty);
  finished_.push_back({prompt_, std::move(tokens), candidate.log_prob / length, plan_.is_stop(candidate.token)});
}

// Returns true if the best running beam could still beat the worst finished one, at its current or its
// largest length.
bool BeamSearch::can_improve() const {
  if (!is_full()) return true;
  const auto& options = plan_.options;
  const bool looks_ahead = options.early_stopping == EarlyStopping::kNever && options.length_penalty > 0;
  const auto length = static_cast<double>(looks_ahead ? plan_.max_new : new_tokens_);
  return scores_.front() / std::pow(length, options.length_penalty) > finished_.back().score;
}

std::vector<Continued> BeamSearch::advance(const std::vector<Continued>& best,
                                           const std::function<TokenIds(std::int64_t beam)>& new_tokens_of) {
  ++new_tokens_;
  const bool at_the_end = new_tokens_ == plan_.max_new;
  const bool at_once = plan_.options.early_stopping == EarlyStopping::kYes;
  const auto beams = static_cast<std::size_t>(plan_.options.num_beams);
  const auto ends = [&](const Continued& candidate) { return at_the_end || plan_.is_stop(candidate.token); };

  const bool takes_more = may_improve_ && !(at_once && is_full());
  for (std::size_t i = 0; takes_more && i < std::min(beams, best.size()); ++i)
    if (ends(best[i]) && best[i].log_prob > kNoBeam / 2) finish(best[i], new_tokens_of);
  std::stable_sort(finished_.begin(), finished_.end(), [](const auto& a, const auto& b) { return a.score > b.score; });
  if (finished_.size() > beams) finished_.resize(beams);

  // Ended candidates fill up the running beams if there are too few others. Their scores then exclude them.
  std::vector<Continued> running = best;
  std::stable_partition(running.begin(), running.end(), [&](const Continued& candidate) { return !ends(candidate); });
  running.resize(beams, running.back());
  for (std::size_t i = 0; i < beams; ++i) scores_[i] = running[i].log_prob + (ends(running[i]) ? kNoBeam : 0);

  may_improve_ = may_improve_ && can_improve();
  is_done_ = at_the_end || !may_improve_ || (at_once && is_full());
  return running;
}

std::vector<GeneratedSequence> BeamSearch::sequences() const {
  const auto wanted = std::min<std::size_t>(plan_.options.num_return_sequences, finished_.size());
  return {finished_.begin(), finished_.begin() + static_cast<std::ptrdiff_t>(wanted)};
}

}  // namespace gantry::generation
