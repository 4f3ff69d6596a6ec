// Text to token ids and back, by the files that published models come with.
//
// Ids and decoding equal those of Hugging Face's tokenizers with add_special_tokens=False: special tokens that stand in
// the text become one id each, and none are put around it. Text that is no UTF-8 is read as Python's
// bytes.decode(errors="replace") reads it; only the byte tokenizer keeps any bytes.
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

// What tokenizer_config.json or the model itself names; not every tokenizer has all.
struct SpecialTokenIds {
  std::optional<std::int64_t> begin, end, padding, unknown;
};

// All functions may be called from several threads at once.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual std::string kind() const = 0;   // "byte-level BPE", for messages
  virtual std::int64_t size() const = 0;  // ids are below this
  virtual SpecialTokenIds special() const = 0;
  // Appends the ids of `text`. InputError where the vocabulary has nothing for a part of it.
  virtual void append(std::string_view text, TokenIds& ids) const = 0;
  // The exact bytes that the ids stand for; half a character where a token ends within one (see valid_utf8). InputError
  // for an id that is not of the vocabulary.
  virtual std::string decode(std::span<const std::int64_t> ids) const = 0;

  TokenIds encode(std::string_view text) const {
    TokenIds ids;
    append(text, ids);
    return ids;
  }
};

// `path`: "bytes" (ids 0 to 255 are bytes); a tokenizer.json (BPE, Unigram or WordPiece), a vocab.json with its
// merges.txt, a SentencePiece *.model, a vocab.txt of WordPiece; or a folder with one of these, looked for in this
// order. A file by itself is read as it is; in a folder the added tokens of tokenizer_config.json and added_tokens.json
// count too. InputError names the file and what is wrong with it, or what it asks for that is not supported.
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path);

// Whether the folder has one of these files. False for what is no folder.
bool has_tokenizer(const std::string& folder);
bool is_byte_tokenizer(const std::string& path);  // "bytes", or "byte" as it was called

}  // namespace gantry
