// The steps of tokenizer.json's pre_tokenizer for tokens that are characters: how a normalized text is cut into pieces.
#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "gantry/data/tokenizers/json_file.h"

namespace gantry {

// `at_start`: the whole text begins with the piece.
using TakePiece = std::function<void(std::string_view piece, bool at_start)>;

class PieceStep {
 public:
  virtual ~PieceStep() = default;
  // Gives the pieces of `text` in order, none of them empty; each is valid during the call. Any thread may call it.
  virtual void cut(std::string_view text, bool at_start, const TakePiece& take) const = 0;
};

// Metaspace, WhitespaceSplit, Whitespace, BertPreTokenizer, Digits, Split, or a Sequence of them. InputError names a
// type or setting that is not supported.
std::vector<std::unique_ptr<PieceStep>> read_piece_steps(const JsonView& pre_tokenizer);

// The steps of a pre_tokenizer, which may be a Sequence of them.
std::vector<JsonView> list_steps(const JsonView& pre_tokenizer);

}  // namespace gantry
