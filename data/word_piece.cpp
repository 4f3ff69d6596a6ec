#include "gantry/data/word_piece.h"

#include <algorithm>
#include <fmt/format.h>

#include "gantry/core/base/utf8.h"
#include "gantry/core/error.h"

namespace gantry {
namespace {

constexpr std::string_view kContinues = "##";
constexpr std::size_t kMostWordCharacters = 100;  // a longer word is unknown
constexpr std::int64_t kSpecialOfOne = 2;         // [CLS] a [SEP]
constexpr std::int64_t kSpecialOfPair = 3;        // [CLS] a [SEP] b [SEP]

struct Special {
  std::size_t begin = std::string_view::npos;
  std::string_view token;
};

// Returns the leftmost special token from `from` on. If several begin there, the longest one.
Special next_special(std::string_view text, std::size_t from, const std::vector<std::string>& longest_first) {
  for (std::size_t begin = from; begin < text.size(); ++begin)
    for (const auto& token : longest_first)
      if (text.substr(begin).starts_with(token)) return {begin, token};
  return {};
}

void append(Encoding& encoding, std::int64_t id, ByteSpan offsets, std::int64_t type) {
  encoding.ids.push_back(id);
  encoding.token_types.push_back(type);
  encoding.offsets.push_back(offsets);
}

void append(Encoding& encoding, const Tokens& tokens, std::int64_t begin, std::int64_t end, std::int64_t type) {
  for (auto i = begin; i < end; ++i)
    append(encoding, tokens.ids[static_cast<std::size_t>(i)], tokens.offsets[static_cast<std::size_t>(i)], type);
}

std::int64_t count(const Tokens& tokens) { return static_cast<std::int64_t>(tokens.ids.size()); }

void require_room(std::int64_t first, std::int64_t second, const EncodeOptions& options) {
  const std::int64_t room = options.max_length - kSpecialOfPair - first;
  if (second <= room || (room > options.stride && options.stride >= 0)) return;
  throw InputError(
      {"pair of texts",
       fmt::format("max_length {} - {} special tokens - {} of the first text leaves {} for the {} of the second",
                   options.max_length, kSpecialOfPair, first, room, second),
       fmt::format("more than the stride of {}", options.stride),
       "increase max_length (data.sequence_length), reduce the stride, or shorten the first text"});
}

}  // namespace

WordPiece::WordPiece(const std::vector<std::string>& vocabulary, const WordPieceOptions& options)
    : options_(options), tokens_(vocabulary) {
  for (std::size_t i = 0; i < vocabulary.size(); ++i) {
    const std::string& token = vocabulary[i];
    const auto id = static_cast<std::int64_t>(i);
    whole_[token] = id;
    if (token.starts_with(kContinues)) continuing_[token.substr(kContinues.size())] = id;
    longest_ = std::max(longest_, token.size());
  }
  unknown_ = special_id(options.unknown);
  classifier_ = special_id(options.classifier);
  separator_ = special_id(options.separator);
  padding_ = special_id(options.padding);
  mask_ = special_id(options.mask);
  special_ = {options.unknown, options.classifier, options.separator, options.padding, options.mask};
  for (const auto& token : options.more_special) {
    special_id(token);
    special_.push_back(token);
  }
  std::stable_sort(special_.begin(), special_.end(), [](const auto& a, const auto& b) { return a.size() > b.size(); });
}

std::int64_t WordPiece::special_id(const std::string& token) const {
  const auto id = id_of(token);
  if (token.empty() || !id)
    throw InputError({"WordPiece vocabulary",
                      fmt::format("there is no special token '{}' among the {} tokens", token, size()),
                      "[UNK], [CLS], [SEP], [PAD] and [MASK], or their names in tokenizer_config.json",
                      "use the vocab.txt of a BERT model"});
  return *id;
}

std::optional<std::int64_t> WordPiece::id_of(std::string_view token) const {
  const auto found = whole_.find(token);
  return found == whole_.end() ? std::nullopt : std::optional(found->second);
}

Tokens WordPiece::tokenize(std::string_view text) const {
  Tokens tokens;
  for (std::size_t at = 0; at < text.size();) {
    const Special special = next_special(text, at, special_);
    const std::size_t end = std::min(special.begin, text.size());
    tokenize_plain(text.substr(at, end - at), static_cast<std::int64_t>(at), tokens);
    at = end + special.token.size();
    if (special.token.empty()) break;
    tokens.ids.push_back(*id_of(special.token));
    tokens.offsets.push_back({static_cast<std::int64_t>(end), static_cast<std::int64_t>(at)});
  }
  return tokens;
}

void WordPiece::tokenize_plain(std::string_view text, std::int64_t base, Tokens& tokens) const {
  const BertTextOptions options{.lower_case = options_.lower_case,
                                .strip_accents = options_.strip_accents.value_or(options_.lower_case),
                                .tokenize_chinese_chars = options_.tokenize_chinese_chars};
  for (const auto& word : bert_words(bert_normalise(characters_of(text, base), options))) tokenize_word(word, tokens);
}

void WordPiece::tokenize_word(const TextCharacters& word, Tokens& tokens) const {
  const std::size_t before = tokens.ids.size();
  const auto be_unknown = [&] {
    tokens.ids.resize(before);
    tokens.offsets.resize(before);
    tokens.ids.push_back(unknown_);
    tokens.offsets.push_back({word.front().source.begin, word.back().source.end});
  };
  if (word.size() > kMostWordCharacters) return be_unknown();
  std::string bytes;
  std::vector<std::size_t> starts;  // first byte of each character, and the end of the last one
  for (const auto& c : word) {
    starts.push_back(bytes.size());
    append_utf8(bytes, c.value);
  }
  starts.push_back(bytes.size());
  for (std::size_t begin = 0; begin < word.size();) {
    const Pieces& pieces = begin == 0 ? whole_ : continuing_;
    auto found = pieces.end();
    std::size_t end = word.size();
    for (; end > begin; --end) {
      const std::size_t length = starts[end] - starts[begin];
      if (length > longest_) continue;
      found = pieces.find(std::string_view(bytes).substr(starts[begin], length));
      if (found != pieces.end()) break;
    }
    if (found == pieces.end()) return be_unknown();
    tokens.ids.push_back(found->second);
    tokens.offsets.push_back({word[begin].source.begin, word[end - 1].source.end});
    begin = end;
  }
}

void WordPiece::finish(Encoding& encoding, const EncodeOptions& options) const {
  encoding.attention_mask.assign(encoding.ids.size(), 1);
  if (!options.pad) return;
  const auto length = static_cast<std::size_t>(options.max_length);
  encoding.ids.resize(length, padding_);
  encoding.token_types.resize(length, 0);
  encoding.attention_mask.resize(length, 0);
  encoding.offsets.resize(length);
}

Encoding WordPiece::encode(std::string_view text, const EncodeOptions& options) const {
  if (options.max_length < kSpecialOfOne)
    throw UsageError(
        {"encode", fmt::format("max_length is {}", options.max_length), "at least 2, for [CLS] and [SEP]", ""});
  const Tokens tokens = tokenize(text);
  Encoding encoding;
  append(encoding, classifier_, {}, 0);
  append(encoding, tokens, 0, std::min(count(tokens), options.max_length - kSpecialOfOne), 0);
  append(encoding, separator_, {}, 0);
  finish(encoding, options);
  return encoding;
}

std::vector<Encoding> WordPiece::encode_pair(const Tokens& first, const Tokens& second,
                                             const EncodeOptions& options) const {
  require_room(count(first), count(second), options);
  const std::int64_t room = options.max_length - kSpecialOfPair - count(first);
  std::vector<Encoding> windows;
  for (std::int64_t begin = 0;; begin += room - options.stride) {
    const std::int64_t end = std::min(begin + room, count(second));
    Encoding& window = windows.emplace_back();
    append(window, classifier_, {}, 0);
    append(window, first, 0, count(first), 0);
    append(window, separator_, {}, 0);
    window.second_first = begin;
    window.second_begin = static_cast<std::int64_t>(window.ids.size());
    append(window, second, begin, end, 1);
    window.second_end = static_cast<std::int64_t>(window.ids.size());
    append(window, separator_, {}, 1);
    finish(window, options);
    if (end == count(second)) return windows;
  }
}

std::vector<Encoding> WordPiece::encode_pair(std::string_view first, std::string_view second,
                                             const EncodeOptions& options) const {
  return encode_pair(tokenize(first), tokenize(second), options);
}

}  // namespace gantry
