#include "gantry/generation/token_choice.h"

#include <cmath>
#include <fmt/format.h>

#include "gantry/core/error.h"
#include "gantry/generation/time_stamps.h"
#include "gantry/launch/launch.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/philox.h"

namespace gantry::generation {
namespace {

torch::Tensor at_least_float32(const torch::Tensor& logits) {
  return logits.to(logits.scalar_type() == torch::kFloat64 ? torch::kFloat64 : torch::kFloat32, /*non_blocking=*/false,
                   /*copy=*/true);
}

// Returns the text of each sequence.
std::vector<const TokenIds*> texts_of(const TextGroup& group) {
  std::vector<const TokenIds*> texts;
  for (std::int64_t i = 0; i < group.sequences(); ++i) texts.push_back(&group.texts()[group.row_of(i)]);
  return texts;
}

// Forbids tokens that cannot follow. `scores`: a row per sequence, columns from token `first` on.
void forbid_now(torch::Tensor& scores, const Plan& plan, const TextGroup& group, std::int64_t first) {
  const std::int64_t new_tokens = group.rounds(), repeated = plan.options.no_repeat_ngram_size;
  if (repeated > 0) forbid_repeated_runs(scores, texts_of(group), repeated, first);
  if (plan.is_too_short(new_tokens)) forbid(scores, plan.options.stop_tokens, first);
  if (plan.begins_with_forced_token(new_tokens)) force(scores, {*plan.options.forced_bos_token}, first);
  if (plan.ends_with_forced_token(new_tokens)) force(scores, plan.options.forced_eos_tokens, first);
  forbid(scores, plan.options.suppress_tokens, first);
  if (new_tokens == 0) forbid(scores, plan.options.begin_suppress_tokens, first);
  if (!plan.only.empty()) keep_only(scores, plan.only, first);
}

// Returns the new tokens of each sequence.
std::vector<TokenIds> new_tokens_of(const TextGroup& group) {
  std::vector<TokenIds> all;
  for (std::int64_t i = 0; i < group.sequences(); ++i) {
    const TokenIds& text = group.texts()[group.row_of(i)];
    all.emplace_back(text.begin() + group.prompt_length(i), text.end());
  }
  return all;
}

}  // namespace

TokenChoice::TokenChoice(const Plan& plan, SplitDim split, std::int64_t first_prompt, std::int64_t prompts)
    : plan_(plan), split_(std::move(split)), first_prompt_(first_prompt) {
  for (std::int64_t prompt = first_prompt; prompt < first_prompt + prompts; ++prompt) {
    if (plan_.is_beams())
      searches_.emplace_back(plan_, prompt);
    else
      rows_.insert(rows_.end(), plan_.width, GeneratedSequence{.prompt = prompt, .tokens = {}});
  }
}

Decision TokenChoice::choose(const torch::Tensor& logits, const TextGroup& group) {
  // Time stamps need full rows, because the probabilities of all times are added.
  if (plan_.is_greedy() && plan_.options.repetition_penalty == 1 && !plan_.options.time_stamps) {
    torch::Tensor scores = at_least_float32(logits);
    const std::int64_t first = first_column(split_);
    forbid_padding(scores, plan_.options.vocabulary, first);
    if (!plan_.biases.empty()) add_biases(scores, texts_of(group), plan_.biases, first);
    forbid_now(scores, plan_, group, first);
    return extended(tokens_of(best_tokens(scores, split_), group));
  }
  const torch::Tensor scores = scores_of(logits, group);
  const auto best = tokens_of(best_tokens(scores, {split_.group, replicate()}), group);
  if (plan_.is_beams()) return best_beams(scores, group);
  return extended(plan_.options.sample ? drawn(scores, group) : best);
}

bool TokenChoice::goes_on(std::int64_t row) const {
  return plan_.is_beams() ? !searches_[row / plan_.width].is_done() : !rows_[row].stopped;
}

// Returns the tokens. Throws NumericalError if the best score of a running sequence is not finite, because
// its token would be arbitrary.
std::vector<std::int64_t> TokenChoice::tokens_of(const std::vector<BestToken>& best, const TextGroup& group) const {
  std::vector<std::int64_t> tokens;
  for (std::size_t row = 0; row < best.size(); ++row) {
    tokens.push_back(best[row].token);
    const double score = best[row].score;
    if (std::isfinite(score) || !goes_on(static_cast<std::int64_t>(row))) continue;
    World* world = current_world();
    throw NumericalError(
        {"generate",
         fmt::format("new token {} of prompt {} has a largest logit of {}{}", group.rounds() + 1,
                     first_prompt_ + static_cast<std::int64_t>(row) / plan_.width + 1,
                     std::isnan(score) ? std::fabs(score) : score, world ? " on " + world->describe() : ""),
         "a finite number", "check the model's weights, or choose a precision with a wider range (bfloat16, float32)"});
  }
  return tokens;
}

// Returns the scores on the host: a row per sequence, with columns for the full vocabulary.
torch::Tensor TokenChoice::scores_of(const torch::Tensor& logits, const TextGroup& group) const {
  torch::Tensor scores = at_least_float32(gather_columns(logits, split_)).to(torch::kCPU);
  if (scores.size(0) != group.sequences()) scores = scores.repeat_interleave(plan_.width, 0);
  forbid_padding(scores, plan_.options.vocabulary, 0);
  if (plan_.is_beams()) scores = scores.log_softmax(1);
  if (!plan_.biases.empty()) add_biases(scores, texts_of(group), plan_.biases, 0);
  if (plan_.options.repetition_penalty != 1)
    penalise_repetition(scores, texts_of(group), plan_.options.repetition_penalty);
  forbid_now(scores, plan_, group, 0);
  if (plan_.options.time_stamps) keep_time_stamps(scores, *plan_.options.time_stamps, new_tokens_of(group));
  return scores;
}

std::vector<std::int64_t> TokenChoice::drawn(const torch::Tensor& scores, const TextGroup& group) const {
  torch::Tensor filtered = scores / plan_.options.temperature;
  keep_top_k(filtered, plan_.options.top_k);
  keep_top_p(filtered, plan_.options.top_p);
  keep_min_p(filtered, plan_.options.min_p);
  keep_typical(filtered, plan_.options.typical_p);
  std::vector<std::int64_t> tokens;
  for (std::int64_t row = 0; row < filtered.size(0); ++row) {
    const auto sequence = static_cast<std::uint64_t>(first_prompt_ * plan_.width + row);
    double uniform = 0;
    philox_uniform({plan_.options.seed, philox_stream("generate", sequence)},
                   static_cast<std::uint64_t>(group.rounds()), 1, &uniform);
    tokens.push_back(drawn_token(filtered[row], uniform));
  }
  return tokens;
}

// Every row continues its own text. The tokens of ended sequences are arbitrary.
Decision TokenChoice::extended(const std::vector<std::int64_t>& tokens) {
  Decision decision{.tokens = tokens, .sources = {}, .joined = {}, .is_last = true};
  for (std::size_t row = 0; row < rows_.size(); ++row) {
    auto& sequence = rows_[row];
    const bool joins = !sequence.stopped;
    decision.sources.push_back(static_cast<std::int64_t>(row));
    decision.joined.push_back(joins ? 1 : 0);
    if (!joins) continue;
    sequence.tokens.push_back(tokens[row]);
    sequence.stopped = plan_.is_stop(tokens[row]);
    const bool is_long = static_cast<std::int64_t>(sequence.tokens.size()) == plan_.max_new;
    if (!sequence.stopped && !is_long) decision.is_last = false;
  }
  return decision;
}

Decision TokenChoice::best_beams(const torch::Tensor& log_probs, const TextGroup& group) {
  const std::int64_t beams = plan_.width, vocabulary = log_probs.size(1);
  Decision decision{.tokens = {}, .sources = {}, .joined = {}, .is_last = true};
  for (std::size_t prompt = 0; prompt < searches_.size(); ++prompt) {
    auto& search = searches_[prompt];
    const std::int64_t first_row = static_cast<std::int64_t>(prompt) * beams;
    if (search.is_done()) {
      for (std::int64_t beam = 0; beam < beams; ++beam) {
        decision.tokens.push_back(0);
        decision.sources.push_back(first_row + beam);
        decision.joined.push_back(0);
      }
      continue;
    }
    const torch::Tensor running = torch::tensor(search.scores(), log_probs.options()).unsqueeze(1);
    const torch::Tensor summed = (log_probs.narrow(0, first_row, beams) + running).reshape({-1});
    const auto [values, places] = summed.topk(std::min(search.candidates(), summed.size(0)));
    std::vector<Continued> best;
    for (std::int64_t i = 0; i < values.size(0); ++i) {
      const auto place = places[i].item<std::int64_t>();
      best.push_back({values[i].item<double>(), place / vocabulary, place % vocabulary});
    }
    const auto going_on = search.advance(best, [&](std::int64_t beam) {
      const TokenIds& text = group.texts()[group.row_of(first_row + beam)];
      return TokenIds(text.begin() + group.prompt_length(first_row + beam), text.end());
    });
    for (const auto& [log_prob, beam, token] : going_on) {
      decision.tokens.push_back(token);
      decision.sources.push_back(first_row + beam);
      decision.joined.push_back(1);
    }
    decision.is_last = decision.is_last && search.is_done();
  }
  return decision;
}

std::vector<GeneratedSequence> TokenChoice::sequences() const {
  std::vector<GeneratedSequence> all = rows_;
  for (const auto& search : searches_)
    for (auto& sequence : search.sequences()) all.push_back(std::move(sequence));
  return all;
}

}  // namespace gantry::generation
