#include <fmt/format.h>

#include "gantry/core/error.h"
#include "gantry/core/utf8.h"
#include "gantry/data/tokenizers/library_tokenizers.h"
#include "gantry/data/word_piece.h"

namespace gantry {
namespace {

class WordPieceTokenizer final : public Tokenizer {
 public:
  explicit WordPieceTokenizer(const std::filesystem::path& path) : word_piece_(WordPiece::load(path.string())) {}

  std::string kind() const override { return "WordPiece"; }
  std::int64_t size() const override { return word_piece_.size(); }
  SpecialTokenIds special() const override {
    return {word_piece_.classifier_id(), word_piece_.separator_id(), word_piece_.padding_id(),
            word_piece_.unknown_id()};
  }

  void append(std::string_view text, TokenIds& ids) const override {
    const bool is_valid = valid_utf8_prefix(text) == text.size();
    const Tokens tokens = word_piece_.tokenize(is_valid ? std::string(text) : valid_utf8(text));
    ids.insert(ids.end(), tokens.ids.begin(), tokens.ids.end());
  }

  std::string decode(std::span<const std::int64_t> ids) const override {
    std::string text;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const std::int64_t id = ids[i];
      if (id < 0 || id >= size())
        throw InputError({fmt::format("token {}", id), "the token is not in the vocabulary",
                          fmt::format("0 to {}", size() - 1), ""});
      const std::string& token = word_piece_.token_of(id);
      const bool goes_on = i > 0 && token.starts_with("##");
      if (i > 0 && !goes_on && stands_apart(token)) text += ' ';
      text += goes_on ? token.substr(2) : token;
    }
    return text;
  }

 private:
  // Punctuation and the ends of contractions stand at the word before them.
  static bool stands_apart(const std::string& token) {
    for (const char* close : {".", "?", "!", ",", "n't", "'m", "'s", "'ve", "'re"})
      if (token.starts_with(close)) return false;
    return true;
  }

  WordPiece word_piece_;
};

}  // namespace

std::unique_ptr<Tokenizer> load_word_piece(const std::filesystem::path& path) {
  return std::make_unique<WordPieceTokenizer>(path);
}

}  // namespace gantry
