// BERT's WordPiece tokenizer over a Hugging Face vocab.txt, equal to BertTokenizerFast in ids and offsets.
//
// Text is normalised and split to words as bert_text.h says; each word is then the longest piece of the vocabulary that
// begins it, the longest "##" piece that goes on, and so forth, or [UNK] as a whole where nothing fits or it has more
// than 100 characters. Special tokens ([CLS], [SEP], [PAD], [UNK], [MASK]) that stand in the text are kept as they are.
// Source of the algorithm: BERT (Devlin et al. 2019), greedy longest-match-first WordPiece.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "gantry/data/bert_text.h"

namespace gantry {

// The keys and defaults of tokenizer_config.json.
struct WordPieceOptions {
  bool lower_case = true;             // do_lower_case
  std::optional<bool> strip_accents;  // as lower_case where it is not said
  bool tokenize_chinese_chars = true;
  std::string unknown = "[UNK]", classifier = "[CLS]", separator = "[SEP]", padding = "[PAD]", mask = "[MASK]";
  std::vector<std::string> more_special;  // further tokens of the vocabulary that are never split
};

// Tokens of one text. offsets[i] are the bytes of the original text that token i stems from.
struct Tokens {
  std::vector<std::int64_t> ids;
  std::vector<ByteSpan> offsets;
};

struct EncodeOptions {
  std::int64_t max_length = 384;  // tokens, special ones included
  std::int64_t stride = 128;      // tokens that consecutive windows of the second text have in common
  bool pad = true;                // fill up to max_length with [PAD]
};

// What a model reads: four lists of one length S, by token.
struct Encoding {
  std::vector<std::int64_t> ids;
  std::vector<std::int64_t> token_types;     // 1 for the second text and the separator after it, else 0
  std::vector<std::int64_t> attention_mask;  // 0 for padding, else 1
  std::vector<ByteSpan> offsets;             // in the text that the token is of; {0, 0} for special tokens
  std::int64_t second_begin = 0;             // tokens [second_begin, second_end) are of the second text
  std::int64_t second_end = 0;
  std::int64_t second_first = 0;  // the first of them is this token of the whole second text
};

class WordPiece {
 public:
  // Line i of the vocabulary is token i; of equal lines the last counts, as in Hugging Face's reader. InputError for a
  // special token that it lacks.
  WordPiece(const std::vector<std::string>& vocabulary, const WordPieceOptions& options);

  // A vocab.txt, or a folder with one; a tokenizer_config.json beside it gives the options. InputError names the file
  // and what is wrong with it.
  static WordPiece load(const std::string& path);

  std::int64_t size() const { return static_cast<std::int64_t>(tokens_.size()); }  // ids are below this
  std::int64_t unknown_id() const { return unknown_; }
  std::int64_t classifier_id() const { return classifier_; }
  std::int64_t separator_id() const { return separator_; }
  std::int64_t padding_id() const { return padding_; }
  std::int64_t mask_id() const { return mask_; }
  std::optional<std::int64_t> id_of(std::string_view token) const;
  const std::string& token_of(std::int64_t id) const { return tokens_[static_cast<std::size_t>(id)]; }  // id < size()

  // Tokens without special ones around them. InputError for text that is no UTF-8.
  Tokens tokenize(std::string_view text) const;

  // [CLS] text [SEP], cut at max_length.
  Encoding encode(std::string_view text, const EncodeOptions& options) const;

  // [CLS] first [SEP] part of second [SEP]: as many windows over the second text as it needs (at least one), each
  // beginning max_length - 3 - |first| - stride tokens after the one before. InputError where the first text leaves too
  // little room to move on.
  std::vector<Encoding> encode_pair(const Tokens& first, const Tokens& second, const EncodeOptions& options) const;
  std::vector<Encoding> encode_pair(std::string_view first, std::string_view second,
                                    const EncodeOptions& options) const;

 private:
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  using Pieces = std::unordered_map<std::string, std::int64_t, Hash, std::equal_to<>>;

  std::int64_t special_id(const std::string& token) const;
  void tokenize_plain(std::string_view text, std::int64_t base, Tokens& tokens) const;
  void tokenize_word(const TextCharacters& word, Tokens& tokens) const;
  void finish(Encoding& encoding, const EncodeOptions& options) const;

  WordPieceOptions options_;
  std::vector<std::string> tokens_;   // by id
  Pieces whole_;                      // every token as the vocabulary spells it
  Pieces continuing_;                 // the "##" ones, without these
  std::size_t longest_ = 0;           // bytes of the longest token
  std::vector<std::string> special_;  // longest first
  std::int64_t unknown_ = 0, classifier_ = 0, separator_ = 0, padding_ = 0, mask_ = 0;
};

}  // namespace gantry
