// Processes scores [rows, vocabulary] in place before a token is chosen, in the order of Hugging Face's
// logits processors. Scores are float32 or float64.
#pragma once

#include <vector>

#include "gantry/data/tokenizers/tokenizer.h"
#include "gantry/generation/generate.h"
#include "gantry/plugins/criterion.h"
#include "gantry/tensors/tensor.h"

namespace gantry::generation {

// Forbids tokens: their scores become minus infinity. The columns are the tokens from `first_column` on.
void forbid(torch::Tensor& scores, const std::vector<std::int64_t>& tokens, std::int64_t first_column);
// Forbids all tokens except these.
void keep_only(torch::Tensor& scores, const std::vector<std::int64_t>& tokens, std::int64_t first_column);
// Forbids, in each row, the tokens that would complete a run of `size` tokens that its text already has.
void forbid_repeated_runs(torch::Tensor& scores, const std::vector<const TokenIds*>& texts, std::int64_t size,
                          std::int64_t first_column);
// Adds, in each row, the biases whose tokens but the last one are at the end of its text to the scores of the last
// token.
void add_biases(torch::Tensor& scores, const std::vector<const TokenIds*>& texts,
                const std::vector<SequenceBias>& biases, std::int64_t first_column);
// Sets the scores of these tokens to 0, and forbids all others.
void force(torch::Tensor& scores, const std::vector<std::int64_t>& tokens, std::int64_t first_column);
// Forbids the tokens from `vocabulary` on; 0: none.
void forbid_padding(torch::Tensor& scores, std::int64_t vocabulary, std::int64_t first_column);
// Applies the repetition penalty to the tokens that are in a row's text. On the host, with columns for all
// tokens.
void penalise_repetition(torch::Tensor& scores, const std::vector<const TokenIds*>& texts, double penalty);

// Filters for sampling: the scores of all other tokens become minus infinity. top_k 0, top_p 1, min_p 0 and
// typical_p 1 keep all tokens.
void keep_top_k(torch::Tensor& scores, std::int64_t top_k);
void keep_top_p(torch::Tensor& scores, double top_p);
void keep_min_p(torch::Tensor& scores, double min_p);
void keep_typical(torch::Tensor& scores, double typical_p);
// Samples a token: returns the one whose interval of the row's cumulative probabilities contains `uniform` in
// [0, 1).
std::int64_t drawn_token(const torch::Tensor& row, double uniform);

// Gathers logits [rows, this rank's columns], which are sharded by `split`. Returns the full rows on every
// rank. Collective over tp.
torch::Tensor gather_columns(const torch::Tensor& logits, const SplitDim& split);
struct BestToken {
  std::int64_t token = 0;
  double score = 0;  // NaN if any score of the row is NaN
};
// Returns each row's best token without gathering the scores: ranks compare their best tokens. The lowest
// token wins a tie. The result is the same on all ranks. Collective over tp.
std::vector<BestToken> best_tokens(const torch::Tensor& scores, const SplitDim& split);
// Returns the first token of this rank's columns.
std::int64_t first_column(const SplitDim& split);

}  // namespace gantry::generation
