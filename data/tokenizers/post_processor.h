// tokenizer.json's post_processor: the special tokens around a text and around two texts.
#pragma once

#include "gantry/data/tokenizers/json_file.h"
#include "gantry/data/tokenizers/tokenizer.h"

namespace gantry {

// A part of two joined texts: the first text, the second one, or special tokens.
struct PairPart {
  int text = 0;  // 1 or 2; 0: the tokens
  std::int64_t type = 0;
  TokenIds tokens = {};
};

struct PostProcessor {
  SurroundingTokens single;
  // Empty: the template does not have both texts once each.
  std::vector<PairPart> pair = {{.text = 1}, {.text = 2, .type = 1}};
};

// Reads BertProcessing, RobertaProcessing, TemplateProcessing, ByteLevel, or a Sequence of them, of which the last one
// joins two texts. Throws InputError for another type or a damaged template.
PostProcessor read_post_processor(const JsonView& view);

TypedTokens join_texts(const std::vector<PairPart>& parts, const TokenIds& first, const TokenIds& second);

}  // namespace gantry
