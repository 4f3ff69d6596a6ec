// The plan of one call of generate(): its checked options, and all lengths.
#pragma once

#include <optional>

#include "gantry/generation/generate.h"

namespace gantry::generation {

struct Plan {
  GenerationOptions options;
  // Tokens of the longest prompt; with an encoder, the number of tokens in `begin` if there are any.
  std::int64_t longest = 0;
  std::int64_t max_new = 0;  // tokens per sequence
  int width = 1;             // sequences that are computed per prompt
  TokenIds begin = {};       // tokens that a decoder's texts begin with; empty for models without an encoder
  TensorDict images = {};    // entries of the prompts' images, rows by prompt, columns by token of the longest prompt
  std::vector<std::int64_t> only = {};    // tokens to choose from; empty: all
  std::vector<SequenceBias> biases = {};  // sequence_bias, and bad_words with minus infinity

  bool is_beams() const { return options.num_beams > 1; }
  bool is_greedy() const { return !options.sample && !is_beams(); }
  bool is_stop(std::int64_t token) const;
  // True if a sequence with `new_tokens` new tokens must not stop yet.
  bool is_too_short(std::int64_t new_tokens) const {
    return new_tokens < options.min_new_tokens || longest + new_tokens < options.min_length;
  }
  // True if the token after `new_tokens` is forced_bos_token, or one of forced_eos_tokens.
  bool begins_with_forced_token(std::int64_t new_tokens) const {
    return options.forced_bos_token && longest + new_tokens == 1;
  }
  bool ends_with_forced_token(std::int64_t new_tokens) const {
    return !options.forced_eos_tokens.empty() && new_tokens == max_new - 1;
  }
};

// Returns the prompts of a call. If the encoder has an input and there are no prompts, there is one text per
// row of the input, which begins with the options' begin_tokens.
std::vector<TokenIds> prompts_of(const std::vector<TokenIds>& given, const GenerationOptions& options,
                                 const Continuation& continuation);

// Returns the plan of a call. Throws UsageError, InputError or ConfigError, see generate().
Plan make_plan(const GenerationOptions& options, const std::vector<TokenIds>& prompts, const Continuation& continuation,
               const std::string& policy);

}  // namespace gantry::generation
