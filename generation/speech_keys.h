// The first tokens of a Whisper model's texts, from its generation_config.json.
#pragma once

#include "gantry/data/tokenizers/json_file.h"
#include "gantry/generation/generate.h"

namespace gantry {

// Sets begin_tokens, languages and time_stamps. The options must already have the file's stop tokens. The
// tokens after the start token are those of Whisper in transformers: the tokens of `language` and `task` or,
// if neither is set, forced_decoder_ids. no_timestamps_token_id follows, unless there are time stamps. If the
// file has lang_to_id and the language is not set, its token is kUnknownToken. Throws InputError for an
// unknown language or task, and for time stamps without the tokens that they need.
void take_speech(const JsonView& keys, const SpeechChoice& asked, GenerationOptions& options);

}  // namespace gantry
