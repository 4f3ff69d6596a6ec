// Special tokens around texts, according to data.bos and data.eos.
#pragma once

#include <compare>
#include <string>

#include "gantry/data/tokenizers/tokenizer.h"

namespace gantry {

// Values of data.bos and data.eos: auto | always | never.
struct TextEnds {
  std::string bos = "auto", eos = "auto";

  auto operator<=>(const TextEnds&) const = default;  // NOLINT(modernize-use-nullptr): of std::string's
};

// Returns the tokens around a text to train on. With auto they are those of the tokenizer's post-processor, and the
// end-of-sequence token if it puts none after a text. With always they also include the beginning-of-sequence token if
// it puts none before a text. Throws InputError if always is set and the tokenizer has no such token.
SurroundingTokens ends_of_training_text(const Tokenizer& tokenizer, const TextEnds& ends = {});

// The tokens around a prompt: as above, but an end-of-sequence token only if the post-processor adds it (T5).
SurroundingTokens ends_of_prompt(const Tokenizer& tokenizer, const TextEnds& ends = {});

// Adds the tokens, except those with which `ids` already begin or end.
void surround(TokenIds& ids, const SurroundingTokens& ends);

}  // namespace gantry
