#include "gantry/data/tokenizers/piece_model.h"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gantry/core/base/utf8.h"
#include "gantry/core/error.h"
#include "gantry/data/tokenizers/pair_model.h"
#include "gantry/data/tokenizers/unigram.h"

namespace gantry {
namespace {

constexpr std::int64_t kMostCharacters = 1 << 20;  // upper limit of max_input_chars_per_word

// The token of unknown text, which a vocabulary may lack until it is needed.
struct UnknownToken {
  std::string content;
  std::optional<std::int64_t> id;

  std::int64_t needed_for(std::string_view piece) const {
    if (id) return *id;
    throw InputError({"tokenizer",
                      fmt::format("the vocabulary has no token for '{}', which is in the text, and no unk_token '{}'",
                                  piece, content),
                      "a vocabulary with the unk_token", ""});
  }
};

UnknownToken read_unknown(const JsonView& view, const Vocabulary& vocabulary, const std::string& otherwise) {
  const std::string content = view.text_or("unk_token", otherwise);
  return {content, vocabulary.id_of(content)};
}

// Greedy: the longest token at the start of the word, then the longest one with the prefix, and so on; one unknown
// token if no token matches.
class WordPieces final : public PieceModel {
 public:
  WordPieces(TokenTable ids, std::string prefix, UnknownToken unknown, std::int64_t most_characters)
      : ids_(std::move(ids)),
        prefix_(std::move(prefix)),
        unknown_(std::move(unknown)),
        most_characters_(most_characters) {
    for (const auto& [token, id] : ids_) longest_ = std::max(longest_, token.size());
  }

  std::string kind() const override { return "WordPiece"; }

  void append(std::string_view piece, TokenIds& ids) const override {
    const std::size_t before = ids.size();
    bool is_known = static_cast<std::int64_t>(utf8_count(piece)) <= most_characters_;
    std::string continued;
    for (std::size_t begin = 0; is_known && begin < piece.size();) {
      if (begin > 0) continued.assign(prefix_).append(piece.substr(begin, longest_));
      const std::size_t length =
          begin == 0 ? append_longest(piece, 0, ids) : append_longest(continued, prefix_.size(), ids);
      is_known = length > 0;
      begin += length;
    }
    if (is_known) return;
    ids.resize(before);
    ids.push_back(unknown_.needed_for(piece));
  }

 private:
  // Appends the longest token that begins `text` and is longer than `least`. Returns its length without `least` bytes,
  // or 0.
  std::size_t append_longest(std::string_view text, std::size_t least, TokenIds& ids) const {
    for (std::size_t end = utf8_start(text, std::min(text.size(), longest_)); end > least;
         end = utf8_start(text, end - 1))
      if (const auto found = ids_.find(text.substr(0, end)); found != ids_.end()) {
        ids.push_back(found->second);
        return end - least;
      }
    return 0;
  }

  TokenTable ids_;
  std::string prefix_;
  UnknownToken unknown_;
  std::int64_t most_characters_;
  std::size_t longest_ = 0;  // bytes
};

// A piece is one token.
class WordLevel final : public PieceModel {
 public:
  WordLevel(TokenTable ids, UnknownToken unknown) : ids_(std::move(ids)), unknown_(std::move(unknown)) {}
  std::string kind() const override { return "WordLevel"; }
  void append(std::string_view piece, TokenIds& ids) const override {
    const auto found = ids_.find(piece);
    ids.push_back(found != ids_.end() ? found->second : unknown_.needed_for(piece));
  }

 private:
  TokenTable ids_;
  UnknownToken unknown_;
};

LoadedPieceModel read_pairs(const JsonView& view, std::size_t more, bool reads_bytes) {
  if (const auto dropout = view.find("dropout"); dropout && dropout->json() != 0.0)
    dropout->refuse("null", "set it to null, because ids would be random");
  LoadedPieceModel loaded{.vocabulary = read_vocabulary(view.at("vocab"), more), .model = {}};
  PairOptions options{.reads_bytes = reads_bytes,
                      .ignores_merges = view.flag_or("ignore_merges", false),
                      .fuses_unknown = view.flag_or("fuse_unk", false),
                      .falls_back_to_bytes = view.flag_or("byte_fallback", false),
                      .unknown = {},
                      .prefix = view.text_or("continuing_subword_prefix", ""),
                      .suffix = view.text_or("end_of_word_suffix", "")};
  if (const auto unknown = view.find("unk_token")) {
    options.unknown = loaded.vocabulary.id_of(unknown->text());
    if (!options.unknown) unknown->refuse("a token of the vocabulary");
  }
  const auto merges = read_merges(view.at("merges"), loaded.vocabulary, utf8_count(options.prefix));
  loaded.model = make_pair_model(loaded.vocabulary.ids, merges, options);
  return loaded;
}

LoadedPieceModel read_words(const JsonView& view, std::size_t more, bool has_pieces) {
  LoadedPieceModel loaded{.vocabulary = read_vocabulary(view.at("vocab"), more), .model = {}};
  UnknownToken unknown = read_unknown(view, loaded.vocabulary, has_pieces ? "[UNK]" : "<unk>");
  const auto most = view.find("max_input_chars_per_word");
  if (has_pieces)
    loaded.model = std::make_unique<WordPieces>(loaded.vocabulary.ids, view.text_or("continuing_subword_prefix", "##"),
                                                std::move(unknown), most ? most->count(kMostCharacters) : 100);
  else
    loaded.model = std::make_unique<WordLevel>(loaded.vocabulary.ids, std::move(unknown));
  return loaded;
}

LoadedPieceModel read_unigram(const JsonView& view) {
  LoadedPieceModel loaded;
  std::vector<double> scores;
  const JsonView list = view.at("vocab");
  for (std::size_t i = 0; i < list.list().size(); ++i) {
    const JsonView pair = list.element(i);
    if (pair.list().size() != 2 || !pair.json()[1].is_number()) pair.refuse("a token and its score");
    loaded.vocabulary.tokens.push_back(pair.element(0).text());
    loaded.vocabulary.ids.insert_or_assign(loaded.vocabulary.tokens.back(), static_cast<std::int32_t>(i));
    scores.push_back(pair.json()[1].get<double>());
  }
  UnigramOptions options{.unknown = {}, .falls_back_to_bytes = view.flag_or("byte_fallback", false)};
  if (const auto unknown = view.find("unk_id"))
    options.unknown = unknown->count(static_cast<std::int64_t>(loaded.vocabulary.tokens.size()));
  loaded.model = make_unigram(loaded.vocabulary.tokens, scores, options);
  return loaded;
}

}  // namespace

std::string piece_model_type(const JsonView& view) {
  const auto type = view.find("type");
  if (!type) {  // files of old versions
    if (view.find("merges")) return "BPE";
    if (view.at("vocab").json().is_array()) return "Unigram";
    return view.find("max_input_chars_per_word") ? "WordPiece" : "WordLevel";
  }
  for (const char* known : {"BPE", "Unigram", "WordPiece", "WordLevel"})
    if (type->text() == known) return known;
  type->refuse("BPE, Unigram, WordPiece or WordLevel", "use a tokenizer with one of these");
}

bool can_read_bytes(const JsonView& view) {
  return piece_model_type(view) == "BPE" && view.text_or("continuing_subword_prefix", "").empty() &&
         view.text_or("end_of_word_suffix", "").empty() && !view.flag_or("byte_fallback", false);
}

LoadedPieceModel read_piece_model(const JsonView& view, std::size_t more, bool reads_bytes) {
  const std::string type = piece_model_type(view);
  if (type == "BPE") return read_pairs(view, more, reads_bytes);
  if (type == "Unigram") return read_unigram(view);
  return read_words(view, more, type == "WordPiece");
}

}  // namespace gantry
