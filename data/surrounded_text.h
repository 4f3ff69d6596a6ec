// Texts with the special tokens that a tokenizer puts around them, truncated to the length of a sample.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "gantry/data/encoding_cache.h"
#include "gantry/data/line_rows.h"
#include "gantry/data/tokenizers/tokenizer.h"

namespace gantry {

struct SurroundedTextRules {
  std::string tokenizer;  // as load_tokenizer() takes it
  std::int64_t sequence_length = 0, vocabulary = 0;
  std::int64_t padding = 0;        // token after the end of a text
  std::string bad_lines = "stop";  // as data.bad_lines
  EncodingResources encoding = {};
};

// The rows of files with such texts. `own`: further rules of the rows, as JSON.
LineRowsInput surrounded_rows_input(const LinePaths& files, const SurroundedTextRules& rules,
                                    const nlohmann::json& own);

// Thread-safe.
class SurroundedTextEncoder {
 public:
  explicit SurroundedTextEncoder(const SurroundedTextRules& rules);

  // The tokens of a text, or of a text and a second one. Special tokens, types and truncation (of the longer text
  // first) are those of Hugging Face's tokenizers. Sets `was_truncated` if they were truncated, else leaves it.
  // Throws BadLine for more tokens than rules.sequence_length, unless rules.bad_lines asks for truncation, and
  // InputError for a token outside the vocabulary. `where`: file and line.
  TypedTokens encode(const std::string& text, const std::optional<std::string>& second, const std::string& where,
                     bool& was_truncated) const;

 private:
  SurroundedTextRules rules_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

}  // namespace gantry
