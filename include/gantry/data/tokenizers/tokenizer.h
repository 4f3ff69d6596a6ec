// Converts text to token ids and back, with the files of published models.
//
// Ids and decoded text equal those of Hugging Face's tokenizers: special tokens in the text become one id each.
// Special tokens around a text are added on request. Invalid UTF-8 is read like Python's
// bytes.decode(errors="replace"); only the byte tokenizer keeps arbitrary bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gantry {

using TokenIds = std::vector<std::int64_t>;

// Special tokens according to tokenizer_config.json or the model; a tokenizer may lack some of them.
struct SpecialTokenIds {
  std::optional<std::int64_t> begin = {}, end = {}, padding = {}, unknown = {}, mask = {};
};

// The special tokens that a tokenizer puts around a text, such as <s> before it or </s> after it.
struct SurroundingTokens {
  TokenIds before, after;
};

// Tokens with their types (token_type_ids): usually 0 for the first of two texts, and 1 for the second.
struct TypedTokens {
  TokenIds ids, types;
};

// All functions are thread-safe.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual std::string kind() const = 0;   // "byte-level BPE", for messages
  virtual std::int64_t size() const = 0;  // ids are below this
  virtual SpecialTokenIds special() const = 0;
  // True for the tokens that the files mark as special.
  virtual bool is_special(std::int64_t) const { return false; }
  // The tokens of tokenizer.json's post_processor. In directories without tokenizer.json, add_bos_token and
  // add_eos_token of tokenizer_config.json replace them for some classes.
  virtual const SurroundingTokens& surrounding() const;
  // Joins the tokens of two texts with special tokens, like Hugging Face's encode(first, second).
  virtual TypedTokens join(const TokenIds& first, const TokenIds& second) const;
  // Appends the ids of `text`. Throws InputError if the vocabulary cannot represent a part of it.
  virtual void append(std::string_view text, TokenIds& ids) const = 0;
  // The same. `places` are byte offsets in ascending order. Returns for each the number of ids of `ids` before it:
  // those that the text up to the place determines.
  virtual std::vector<std::size_t> append_and_count(std::string_view text, std::span<const std::size_t> places,
                                                    TokenIds& ids) const;
  // Returns the exact bytes of the ids, which may end within a character (see valid_utf8). `skip_specials` leaves out
  // the tokens that the files mark as special. Throws InputError for an id outside of the vocabulary.
  virtual std::string decode(std::span<const std::int64_t> ids, bool skip_specials) const = 0;
  std::string decode(std::span<const std::int64_t> ids) const { return decode(ids, false); }

  TokenIds encode(std::string_view text) const {
    TokenIds ids;
    append(text, ids);
    return ids;
  }
  // The ids of the text between the surrounding tokens, like Hugging Face's encode() with add_special_tokens=True.
  TokenIds encode_surrounded(std::string_view text) const;
};

// Loads a tokenizer. `path` is "bytes" (ids 0 to 255 are bytes), one of the following files, or a directory with one of
// them. In a directory they are searched in this order:
//
//   tokenizer.json              all models
//   vocab.json with merges.txt  byte-level BPE, for the tokenizer_class GPT2, Roberta, Whisper, CLIP or Qwen2
//   *.model                     SentencePiece, or tiktoken's ranks
//   *.tiktoken                  tiktoken's ranks
//   vocab.txt                   WordPiece
//
// In a directory, the added tokens of tokenizer_config.json and added_tokens.json are used too. Throws InputError with
// the file and the fault, or the unsupported feature.
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path);

// True if the directory has one of these files. False if `folder` is not a directory.
bool has_tokenizer(const std::string& folder);
bool is_byte_tokenizer(const std::string& path);  // "bytes", or its former name "byte"

}  // namespace gantry
