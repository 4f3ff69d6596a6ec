// The tokens that a decoder's texts begin with by a model's generation_config.json.
#pragma once

#include <vector>

#include "gantry/data/tokenizers/json_file.h"

namespace gantry {

// A language that would have to be detected.
inline constexpr std::int64_t kUnknownToken = -1;

// Behind the start token, as transformers' Whisper begins: the tokens of `language` and `task`, or where neither is
// set forced_decoder_ids, then no_timestamps_token_id. kUnknownToken stands for the language where lang_to_id is there
// and nothing names it. InputError for time stamps, and for what names no token.
std::vector<std::int64_t> forced_tokens(const JsonView& keys);

}  // namespace gantry
