// From a piece of normalized text to token ids, where tokens are characters and not bytes: BPE with merges (Llama 2),
// Unigram (T5), WordPiece (BERT). Equal to the models of Hugging Face's tokenizers.
#pragma once

#include <memory>
#include <string_view>

#include "gantry/data/tokenizers/json_file.h"
#include "gantry/data/tokenizers/tokenizer.h"
#include "gantry/data/tokenizers/vocabulary.h"

namespace gantry {

class PieceModel {
 public:
  virtual ~PieceModel() = default;
  virtual std::string kind() const = 0;  // for messages
  // Appends the ids of a piece of valid UTF-8. Any thread may call it. InputError where the vocabulary has nothing for
  // a part of it and names no token for what is unknown.
  virtual void append(std::string_view piece, TokenIds& ids) const = 0;
};

struct LoadedPieceModel {
  Vocabulary vocabulary;
  std::unique_ptr<PieceModel> model;
};

// The `model` of a tokenizer.json, to which `more` tokens will be added. InputError for one that is broken, or asks for
// what is not supported.
LoadedPieceModel read_piece_model(const JsonView& view, std::size_t more);

}  // namespace gantry
