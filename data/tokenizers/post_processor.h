// tokenizer.json's post_processor: the special tokens before and after a text.
#pragma once

#include "gantry/data/tokenizers/json_file.h"
#include "gantry/data/tokenizers/tokenizer.h"

namespace gantry {

// Reads BertProcessing, RobertaProcessing, TemplateProcessing (its template of a single text), ByteLevel, or a Sequence
// of them. Throws InputError for another type or a damaged template.
SurroundingTokens read_post_processor(const JsonView& view);

}  // namespace gantry
