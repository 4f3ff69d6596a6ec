// A tokenizer.json whose tokens are characters: Llama 2 (BPE with byte fallback), T5 (Unigram), BERT (WordPiece) and
// their relatives. Added tokens, then the normalizer, then the cuts of the pre_tokenizer, then the model.
#pragma once

#include <filesystem>
#include <memory>

#include "gantry/data/tokenizers/added_tokens.h"
#include "gantry/data/tokenizers/piece_model.h"
#include "gantry/data/tokenizers/piece_step.h"
#include "gantry/data/tokenizers/token_decoder.h"
#include "gantry/data/tokenizers/tokenizer.h"

namespace gantry {

class PieceTokenizer final : public Tokenizer {
 public:
  // From the text of a tokenizer.json; `path` is for messages and for the files beside it, which name special tokens;
  // `special` are those that they leave out. InputError for one that is broken, or asks for what is not supported.
  PieceTokenizer(std::string_view text, const std::filesystem::path& path, const SpecialTokenIds& special = {});

  std::string kind() const override { return model_->kind(); }
  std::int64_t size() const override { return static_cast<std::int64_t>(tokens_.size()); }
  SpecialTokenIds special() const override { return special_; }
  void append(std::string_view text, TokenIds& ids) const override;
  std::string decode(std::span<const std::int64_t> ids) const override;

 private:
  void append_piece(std::string_view piece, bool at_start, std::size_t step, TokenIds& ids) const;

  std::vector<std::string> tokens_;  // by id
  SpecialTokenIds special_;
  AddedTokens added_;
  std::vector<std::unique_ptr<PieceStep>> steps_;
  std::unique_ptr<PieceModel> model_;
  std::unique_ptr<TokenDecoder> decoder_;  // null: tokens with blanks between them
};

}  // namespace gantry
