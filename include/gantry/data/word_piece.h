// BERT's WordPiece tokenizer for a Hugging Face vocab.txt. Ids and offsets equal those of BertTokenizerFast.
//
// Text is normalised and split into words as in bert_text.h. A word is split greedily into the longest vocabulary piece
// at its start, then the longest "##" piece, and so on. It becomes [UNK] if no piece matches, or if it has more than
// 100 characters. Special tokens in the text ([CLS], [SEP], [PAD], [UNK], [MASK]) are kept. Source of the algorithm:
// BERT (Devlin et al. 2019), greedy longest-match-first WordPiece.
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
  std::optional<bool> strip_accents;  // not set: equal to lower_case
  bool tokenize_chinese_chars = true;
  std::string unknown = "[UNK]", classifier = "[CLS]", separator = "[SEP]", padding = "[PAD]", mask = "[MASK]";
  std::vector<std::string> more_special;  // further tokens of the vocabulary that are never split
};

// The tokens of one text. offsets[i] are the bytes of the original text that token i comes from.
struct Tokens {
  std::vector<std::int64_t> ids;
  std::vector<ByteSpan> offsets;
};

struct EncodeOptions {
  std::int64_t max_length = 384;  // maximum number of tokens, including special ones
  std::int64_t stride = 128;      // number of tokens that consecutive windows of the second text share
  bool pad = true;                // pad with [PAD] to max_length
};

// The inputs of a model: four lists of the same length S, by token.
struct Encoding {
  std::vector<std::int64_t> ids;
  std::vector<std::int64_t> token_types;     // 1 for the second text and the separator after it, otherwise 0
  std::vector<std::int64_t> attention_mask;  // 0 for padding, otherwise 1
  std::vector<ByteSpan> offsets;             // in the token's text; {0, 0} for special tokens
  std::int64_t second_begin = 0;             // tokens [second_begin, second_end) belong to the second text
  std::int64_t second_end = 0;
  std::int64_t second_first = 0;  // index of the first of these tokens in the full second text
};

class WordPiece {
 public:
  // Line i of the vocabulary is token i; if lines are equal, the last one counts, as in Hugging Face's reader. Throws
  // InputError for a missing special token.
  WordPiece(const std::vector<std::string>& vocabulary, const WordPieceOptions& options);

  // Loads a vocab.txt, or a directory with one. Options and further tokens come from tokenizer_config.json,
  // special_tokens_map.json and added_tokens.json in the same directory. Throws InputError with the file and the fault,
  // also for an added token with lstrip, rstrip, single_word or normalized.
  static WordPiece load(const std::string& path);

  std::int64_t size() const { return static_cast<std::int64_t>(tokens_.size()); }  // ids are below this
  std::int64_t unknown_id() const { return unknown_; }
  std::int64_t classifier_id() const { return classifier_; }
  std::int64_t separator_id() const { return separator_; }
  std::int64_t padding_id() const { return padding_; }
  std::int64_t mask_id() const { return mask_; }
  std::optional<std::int64_t> id_of(std::string_view token) const;
  const std::string& token_of(std::int64_t id) const { return tokens_[static_cast<std::size_t>(id)]; }  // id < size()

  // Returns the tokens without surrounding special tokens. Throws InputError for invalid UTF-8.
  Tokens tokenize(std::string_view text) const;

  // Returns [CLS] text [SEP], truncated to max_length.
  Encoding encode(std::string_view text, const EncodeOptions& options) const;

  // Returns [CLS] first [SEP] part of second [SEP]: one or more windows over the second text. Each one starts
  // max_length - 3 - |first| - stride tokens after the previous one. Throws InputError if that is not positive.
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
  Pieces whole_;                      // all tokens as in the vocabulary
  Pieces continuing_;                 // the "##" tokens, without the "##"
  std::size_t longest_ = 0;           // length of the longest token in bytes
  std::vector<std::string> special_;  // longest first
  std::int64_t unknown_ = 0, classifier_ = 0, separator_ = 0, padding_ = 0, mask_ = 0;
};

}  // namespace gantry
