// What is done to scores [rows, vocabulary] before a token is chosen, in the order of Hugging Face's processors. In
// place, on the host, in float32 or float64.
#pragma once

#include <vector>

#include "gantry/data/tokenizers/tokenizer.h"
#include "gantry/plugins/criterion.h"
#include "gantry/tensors/tensor.h"

namespace gantry::generation {

// Tokens that can't be chosen: columns are tokens from `first_column` on.
void forbid(torch::Tensor& scores, const std::vector<std::int64_t>& tokens, std::int64_t first_column);
// All but these can't be chosen, likewise.
void keep_only(torch::Tensor& scores, const std::vector<std::int64_t>& tokens, std::int64_t first_column);
// In each row, the tokens that would complete a run of `size` tokens that its text already has.
void forbid_repeated_runs(torch::Tensor& scores, const std::vector<const TokenIds*>& texts, std::int64_t size,
                          std::int64_t first_column);
// In each row, the last token of each of `words` whose other tokens are at the end of its text.
void forbid_words(torch::Tensor& scores, const std::vector<const TokenIds*>& texts, const std::vector<TokenIds>& words,
                  std::int64_t first_column);
// These tokens have the score 0, and all others can't be chosen.
void force(torch::Tensor& scores, const std::vector<std::int64_t>& tokens, std::int64_t first_column);
// Columns of tokens from `vocabulary` on; 0: none.
void forbid_padding(torch::Tensor& scores, std::int64_t vocabulary, std::int64_t first_column);
// Of the tokens that are in a row's text.
void penalise_repetition(torch::Tensor& scores, const std::vector<const TokenIds*>& texts, double penalty);

// The filters of drawn tokens: others' scores become minus infinity. top_k 0, top_p 1,
// min_p 0 and typical_p 1 keep all.
void keep_top_k(torch::Tensor& scores, std::int64_t top_k);
void keep_top_p(torch::Tensor& scores, double top_p);
void keep_min_p(torch::Tensor& scores, double min_p);
void keep_typical(torch::Tensor& scores, double typical_p);
// The token whose part of a row's probabilities, one behind the other, has the place `uniform` in [0, 1).
std::int64_t drawn_token(const torch::Tensor& row, double uniform);

// Logits [rows, this rank's columns] that are split as `split` says, whole on every rank. Collective over tp.
torch::Tensor gather_columns(const torch::Tensor& logits, const SplitDim& split);
struct BestToken {
  std::int64_t token = 0;
  double score = 0;  // NaN if any of the row is
};
// Each row's best token without gathering: ranks compare their best ones, the lowest token wins a tie. The same on all
// ranks. Collective over tp.
std::vector<BestToken> best_tokens(const torch::Tensor& scores, const SplitDim& split);
// The first token of this rank's columns.
std::int64_t first_column(const SplitDim& split);

}  // namespace gantry::generation
