// The steps of tokenizer.json's pre_tokenizer: how normalized text is split into pieces.
#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "gantry/data/tokenizers/json_file.h"

namespace gantry {

// `at_start`: the piece begins the whole text.
using TakePiece = std::function<void(std::string_view piece, bool at_start)>;

class PieceStep {
 public:
  virtual ~PieceStep() = default;
  // Passes the pieces of `text` (valid UTF-8, not empty) to `take` in order. Pieces are not empty and valid during the
  // call. Thread-safe.
  virtual void split(std::string_view text, bool at_start, const TakePiece& take) const = 0;
};

// Reads one step: BertPreTokenizer, ByteLevel, CharDelimiterSplit, Digits, Metaspace, Punctuation, Split,
// UnicodeScripts, Whitespace or WhitespaceSplit. Some consist of several. `spells_bytes`: a ByteLevel step replaces
// bytes by their spelling (byte_level.h). Throws InputError that names an unsupported type or setting.
std::vector<std::unique_ptr<PieceStep>> read_piece_steps(const JsonView& step, bool spells_bytes);

// The steps of a pre_tokenizer, which may be a Sequence.
std::vector<JsonView> list_steps(const JsonView& pre_tokenizer);

}  // namespace gantry
