// One call of generate(), checked: its options with all lengths known.
#pragma once

#include <optional>

#include "gantry/generation/generate.h"

namespace gantry::generation {

struct Plan {
  GenerationOptions options;
  std::int64_t longest = 0;  // of the call's prompts, in tokens; of an encoder's, the one token that a text begins with
  std::int64_t max_new = 0;  // tokens per sequence
  int width = 1;             // sequences that are computed for each prompt
  TokenIds begin = {};       // of a decoder beside an encoder: what a text begins with where no prompt says it
  TensorDict images = {};    // entries of the prompts' images, rows by prompt, columns by token of the longest prompt
  std::vector<std::int64_t> only = {};  // the tokens that are chosen among; empty: all

  bool is_beams() const { return options.num_beams > 1; }
  bool is_greedy() const { return !options.sample && !is_beams(); }
  bool is_stop(std::int64_t token) const;
  // True while a sequence of so many new tokens may not stop.
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

// The prompts of a call: where an encoder is given its rows and there are none, as many texts as rows, which begin as
// the options say.
std::vector<TokenIds> prompts_of(const std::vector<TokenIds>& given, const GenerationOptions& options,
                                 const Continuation& continuation);

// UsageError, InputError or ConfigError as generate() says.
Plan make_plan(const GenerationOptions& options, const std::vector<TokenIds>& prompts, const Continuation& continuation,
               const std::string& policy);

}  // namespace gantry::generation
