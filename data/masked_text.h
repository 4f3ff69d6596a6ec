// Rows of text with masked tokens, for models that read both directions (data.objective: mlm).
#pragma once

#include <cstdint>

#include "gantry/data/dataset.h"
#include "gantry/data/tokenizers/tokenizer.h"

namespace gantry {

// The choice of tokens that are masked, and their replacements.
struct Masking {
  double probability = 0.15;  // that a token is chosen
  std::int64_t mask_token = 0;
  std::int64_t tokens = 0;    // random tokens are below it
  std::vector<bool> special;  // by id: tokens that are never masked
  std::uint64_t seed = 0;
};

// The masking of a tokenizer for a model with this vocabulary. Throws InputError if the tokenizer has no mask token, or
// has more tokens than the model.
Masking make_masking(const Tokenizer& tokenizer, const std::string& path, std::int64_t vocabulary_size);

// Rows of next_token_entries as rows of input_ids and labels [sequence_length], the same tokens, of which `masking`
// chooses some: their label is the token, and all other labels are kNotCounted. 80 % of the chosen tokens become the
// mask token, 10 % a random token, and 10 % stay (Devlin et al., arXiv 1810.04805). The choice depends on the seed and
// the row's place alone: it is equal in every layout, and another one in each pass (Liu et al., arXiv 1907.11692).
SampleSource mask_tokens(SampleSource rows, const Masking& masking);

}  // namespace gantry
