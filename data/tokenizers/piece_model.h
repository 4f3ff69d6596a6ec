// The models of tokenizer.json: from a piece of text to token ids. BPE (GPT-2, Llama), Unigram (T5), WordPiece (BERT)
// and WordLevel, equal to those of Hugging Face's tokenizers.
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
  // Appends the ids of a piece, which is not empty. Thread-safe. Throws InputError if the vocabulary has no token for a
  // part of it, and the model needs one.
  virtual void append(std::string_view piece, TokenIds& ids) const = 0;
};

struct LoadedPieceModel {
  Vocabulary vocabulary;
  std::unique_ptr<PieceModel> model;
};

// The name of the model, also for files without `type`. Throws InputError for an unknown one.
std::string piece_model_type(const JsonView& view);

// True if the model can read the bytes of a piece directly in place of their spelling (byte_level.h), which is faster.
bool can_read_bytes(const JsonView& view);

// The `model` of a tokenizer.json, to which `more` tokens will be added. `reads_bytes`: see can_read_bytes(). Throws
// InputError for a damaged model or an unsupported setting.
LoadedPieceModel read_piece_model(const JsonView& view, std::size_t more, bool reads_bytes);

}  // namespace gantry
