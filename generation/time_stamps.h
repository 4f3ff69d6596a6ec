// Time-stamp tokens of Whisper models: the rules for their order, and the texts between them.
#pragma once

#include <optional>
#include <vector>

#include "gantry/generation/generate.h"
#include "gantry/tensors/tensor.h"

namespace gantry::generation {

// Sets the scores [rows, vocabulary] of tokens that must not follow to minus infinity. `texts`: the new
// tokens of each row so far. The rules are those of WhisperTimeStampLogitsProcessor in transformers. A text
// begins with a time. Times come in pairs, except for the last time before the end of a text. Times do not
// decrease, and the two of a pair may be equal. If all times together are likelier than the likeliest other
// token, a time is chosen. Throws InputError if the vocabulary has no times.
void keep_time_stamps(torch::Tensor& scores, const TimeStamps& stamps, const std::vector<TokenIds>& texts);

// The text between two times, in seconds from the start of the window.
struct TimedText {
  double begin = 0;
  std::optional<double> end;  // empty: the sequence ended without another time
  TokenIds tokens;            // text tokens only
};
// Returns the texts of a sequence in order, without empty ones.
std::vector<TimedText> timed_texts(const TokenIds& tokens, const TimeStamps& stamps);

}  // namespace gantry::generation
