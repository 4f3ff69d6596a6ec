#include "gantry/data/tokenizers/piece_model.h"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gantry/core/error.h"
#include "gantry/core/utf8.h"
#include "gantry/data/tokenizers/unigram.h"

namespace gantry {
namespace {

constexpr std::int64_t kMostCharacters = 1 << 20;  // that a WordPiece's word may have

// The tokens <0x00> to <0xFF>; empty unless all are there.
std::vector<std::int32_t> byte_tokens(const Vocabulary& vocabulary) {
  std::vector<std::int32_t> ids;
  for (int byte = 0; byte < 256; ++byte)
    if (const auto id = vocabulary.id_of(fmt::format("<0x{:02X}>", byte)))
      ids.push_back(static_cast<std::int32_t>(*id));
  return ids.size() == 256 ? ids : std::vector<std::int32_t>();
}

std::optional<std::int64_t> unknown_of(const JsonView& view, const Vocabulary& vocabulary) {
  const auto token = view.find("unk_token");
  if (!token) return std::nullopt;
  const auto id = vocabulary.id_of(token->text());
  if (!id) token->refuse("a token of the vocabulary");
  return id;
}

// Every character is a symbol at first; one without a token is its bytes, or unknown, or left out.
class CharacterPairs final : public PieceModel {
 public:
  struct Options {
    std::vector<std::int32_t> bytes;  // empty: no fallback
    std::optional<std::int64_t> unknown;
    bool fuses_unknown = false;  // neighbours are one token
    bool ignores_merges = false;
  };
  CharacterPairs(TokenTable ids, const std::vector<Merge>& merges, Options options)
      : ids_(std::move(ids)), pairs_(no_bytes(), merges, {}), options_(std::move(options)) {}

  std::string kind() const override { return "BPE"; }

  void append(std::string_view piece, TokenIds& ids) const override {
    if (const auto whole = ids_.find(piece); options_.ignores_merges && whole != ids_.end()) {
      ids.push_back(whole->second);
      return;
    }
    std::vector<std::int32_t> symbols;
    symbols.reserve(piece.size());
    bool was_unknown = false;
    for (; !piece.empty(); piece.remove_prefix(utf8_length(piece[0]))) {
      const std::string_view character = piece.substr(0, utf8_length(piece[0]));
      const auto found = ids_.find(character);
      const bool falls_back = found == ids_.end() && !options_.bytes.empty();
      if (found != ids_.end()) symbols.push_back(found->second);
      if (falls_back)
        for (const char c : character) symbols.push_back(options_.bytes[static_cast<unsigned char>(c)]);
      const bool is_unknown = found == ids_.end() && !falls_back;
      if (is_unknown && options_.unknown && !(was_unknown && options_.fuses_unknown))
        symbols.push_back(static_cast<std::int32_t>(*options_.unknown));
      was_unknown = is_unknown;
    }
    pairs_.merge(symbols);
    ids.insert(ids.end(), symbols.begin(), symbols.end());
  }

 private:
  static std::array<std::int32_t, 256> no_bytes() {
    std::array<std::int32_t, 256> none{};
    none.fill(BytePair::kNone);
    return none;
  }

  TokenTable ids_;
  BytePair pairs_;
  Options options_;
};

// The longest token that begins the word, then the longest that goes on, or one unknown token for all of it.
class WordPieces final : public PieceModel {
 public:
  WordPieces(TokenTable ids, std::string prefix, std::int64_t unknown, std::int64_t most_characters)
      : ids_(std::move(ids)), prefix_(std::move(prefix)), unknown_(unknown), most_characters_(most_characters) {
    for (const auto& [token, id] : ids_) longest_ = std::max(longest_, token.size());
  }

  std::string kind() const override { return "WordPiece"; }

  void append(std::string_view piece, TokenIds& ids) const override {
    const std::size_t before = ids.size();
    bool is_known = static_cast<std::int64_t>(utf8_count(piece)) <= most_characters_;
    for (std::size_t begin = 0; is_known && begin < piece.size();) {
      const std::size_t end = end_of_longest(piece, begin, ids);
      is_known = end > begin;
      begin = end;
    }
    if (is_known) return;
    ids.resize(before);
    ids.push_back(unknown_);
  }

 private:
  // The end of the token that was appended; `begin` where none fits.
  std::size_t end_of_longest(std::string_view piece, std::size_t begin, TokenIds& ids) const {
    std::size_t end = utf8_start(piece, std::min(piece.size(), begin + longest_));
    while (end > begin) {
      const std::string_view part = piece.substr(begin, end - begin);
      const auto found = begin == 0 ? ids_.find(part) : ids_.find(fmt::format("{}{}", prefix_, part));
      if (found != ids_.end()) {
        ids.push_back(found->second);
        return end;
      }
      end = utf8_start(piece, end - 1);
    }
    return begin;
  }

  TokenTable ids_;
  std::string prefix_;
  std::int64_t unknown_, most_characters_;
  std::size_t longest_ = 0;  // bytes
};

LoadedPieceModel read_pairs(const JsonView& view, std::size_t more) {
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (const auto value = view.find(key); value && !value->text().empty())
      value->refuse("null", "use a tokenizer without it");
  if (const auto dropout = view.find("dropout"); dropout && dropout->json() != 0.0)
    dropout->refuse("null", "set it to null, because ids would be random");
  LoadedPieceModel loaded{.vocabulary = read_vocabulary(view.at("vocab"), more), .model = {}};
  CharacterPairs::Options options{.unknown = unknown_of(view, loaded.vocabulary),
                                  .fuses_unknown = view.flag_or("fuse_unk", false),
                                  .ignores_merges = view.flag_or("ignore_merges", false)};
  if (view.flag_or("byte_fallback", false)) options.bytes = byte_tokens(loaded.vocabulary);
  loaded.model = std::make_unique<CharacterPairs>(
      loaded.vocabulary.ids, read_merges(view.at("merges"), loaded.vocabulary), std::move(options));
  return loaded;
}

LoadedPieceModel read_word_pieces(const JsonView& view, std::size_t more) {
  LoadedPieceModel loaded{.vocabulary = read_vocabulary(view.at("vocab"), more), .model = {}};
  const auto unknown = unknown_of(view, loaded.vocabulary);
  if (!unknown) view.refuse("a model with unk_token");
  const auto prefix = view.find("continuing_subword_prefix");
  const auto most = view.find("max_input_chars_per_word");
  loaded.model = std::make_unique<WordPieces>(loaded.vocabulary.ids, prefix ? prefix->text() : "##", *unknown,
                                              most ? most->count(kMostCharacters) : 100);
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
  UnigramOptions options;
  if (const auto unknown = view.find("unk_id"))
    options.unknown = unknown->count(static_cast<std::int64_t>(loaded.vocabulary.tokens.size()));
  if (view.flag_or("byte_fallback", false)) options.bytes = byte_tokens(loaded.vocabulary);
  loaded.model = make_unigram(loaded.vocabulary.tokens, scores, options);
  return loaded;
}

}  // namespace

LoadedPieceModel read_piece_model(const JsonView& view, std::size_t more) {
  const auto type_view = view.find("type");
  const std::string type = type_view ? type_view->text() : view.find("merges") ? "BPE" : "";
  if (type == "BPE") return read_pairs(view, more);
  if (type == "Unigram") return read_unigram(view);
  if (type == "WordPiece") return read_word_pieces(view, more);
  (type_view ? *type_view : view).refuse("BPE, Unigram or WordPiece", "use a tokenizer with one of these");
}

}  // namespace gantry
