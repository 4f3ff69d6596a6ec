// What tokenizer.json's normalizer does to a text before it is split.
//
// Equal to Hugging Face's tokenizers, whose Unicode data for composition and marks are of Unicode 9.0 and 8.0:
// characters that came later stay as they are.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "gantry/data/tokenizers/json_file.h"

namespace gantry {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  // Of valid UTF-8. Any thread may call it.
  virtual std::string apply(std::string_view text) const = 0;
};

// Null for no normalizer. InputError names a type or setting that is not supported: known are Sequence, NFC, NFD, NFKC,
// NFKD, Nmt, Lowercase, StripAccents, Strip, Prepend, Replace, ByteLevel, Precompiled (SentencePiece's table) and
// BertNormalizer.
std::shared_ptr<const Normalizer> read_normalizer(const JsonView& view);

// SentencePiece's table of replacements, as tokenizer.json has it in base64. `place` is for messages.
std::shared_ptr<const Normalizer> read_precompiled(const std::string& base64, const std::string& place);

}  // namespace gantry
