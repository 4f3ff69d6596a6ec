// Times among a Whisper's tokens: which may follow which, and the texts between them.
#pragma once

#include <optional>
#include <vector>

#include "gantry/generation/generate.h"
#include "gantry/tensors/tensor.h"

namespace gantry::generation {

// Of scores [rows, vocabulary] of the tokens behind `texts`, the new tokens of each row: those that can't follow become
// minus infinity. As transformers' WhisperTimeStampLogitsProcessor: a text begins with a time; times come in pairs, but
// for the last one before a text's end; they don't fall, and the two of a pair may be equal; and where all times
// together are likelier than the likeliest other token, it is one of them. InputError for a vocabulary without times.
void keep_time_stamps(torch::Tensor& scores, const TimeStamps& stamps, const std::vector<TokenIds>& texts);

// What was said from one time to another, in seconds of the window.
struct TimedText {
  double begin = 0;
  std::optional<double> end;  // absent: the text ended before
  TokenIds tokens;            // of text alone
};
// The texts among a sequence's tokens, in order; a time without text is none.
std::vector<TimedText> timed_texts(const TokenIds& tokens, const TimeStamps& stamps);

}  // namespace gantry::generation
