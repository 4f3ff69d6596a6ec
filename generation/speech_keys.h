// How a Whisper's texts begin, by its generation_config.json.
#pragma once

#include "gantry/data/tokenizers/json_file.h"
#include "gantry/generation/generate.h"

namespace gantry {

// Sets begin_tokens, languages and time_stamps, of options that have the file's stop tokens already. Behind the start
// token, as transformers' Whisper begins: the tokens of `language` and `task`, or where neither is set
// forced_decoder_ids, then no_timestamps_token_id, unless there are time stamps. kUnknownToken stands for the language
// where lang_to_id is there and nothing names it. InputError for what names no token, and for time stamps without the
// tokens that they need.
void take_speech(const JsonView& keys, const SpeechChoice& asked, GenerationOptions& options);

}  // namespace gantry
