// The normalizer of tokenizer.json, which is applied to a text before it is split.
//
// Results equal those of Hugging Face's tokenizers. Their data for composition are of Unicode 9.0, and those
// for marks of Unicode 8.0. Later characters are not changed.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "gantry/data/tokenizers/json_file.h"

namespace gantry {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  // Returns the normalized text. `text` must be valid UTF-8. Thread-safe.
  virtual std::string apply(std::string_view text) const = 0;
};

// Reads a normalizer. Supported types are Sequence, NFC, NFD, NFKC, NFKD, Nmt, Lowercase, StripAccents,
// Strip, Prepend, Replace, ByteLevel, Precompiled (SentencePiece's table) and BertNormalizer. Throws
// InputError for other types and for unsupported settings.
std::shared_ptr<const Normalizer> read_normalizer(const JsonView& view);

// Reads SentencePiece's table of replacements in base64, its format in tokenizer.json. `place` is for error
// messages.
std::shared_ptr<const Normalizer> read_precompiled(const std::string& base64, const std::string& place);

}  // namespace gantry
