// Tokenizers compared with those of Hugging Face and SentencePiece: tests/golden/tokenizers.
#include "gantry/data/tokenizers/tokenizer.h"

#include <fmt/format.h>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <thread>

#include "gantry/core/base/utf8.h"
#include "gantry/core/error.h"
#include "gantry/data/tokenizers/merge_table.h"
#include "gantry/data/tokenizers/text_pattern.h"

namespace gantry {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

const std::string kTokenizerGoldens = std::string(GANTRY_SOURCE_DIR) + "/tests/golden/tokenizers/";

json tokenizer_golden(const std::string& name) { return json::parse(std::ifstream(kTokenizerGoldens + name)); }

std::string bytes_of(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2) bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

class Tokenizers : public ::testing::TestWithParam<const char*> {};

TEST_P(Tokenizers, EqualTheirSourceOnHardText) {
  const auto tokenizer = load_tokenizer(kTokenizerGoldens + GetParam());
  int cases = 0;
  for (const auto& entry : tokenizer_golden("cases.json")) {
    if (entry["tokenizer"] != GetParam()) continue;
    const std::string text = bytes_of(entry["bytes"]);
    const TokenIds ids = tokenizer->encode(text);
    EXPECT_EQ(json(ids), entry["ids"]) << entry["name"];
    EXPECT_EQ(valid_utf8(tokenizer->decode(ids)), entry["decoded"].get<std::string>()) << entry["name"];
    ++cases;
  }
  EXPECT_GE(cases, 40);
}

TEST_P(Tokenizers, CountTheTokensBeforePlaces) {
  const auto tokenizer = load_tokenizer(kTokenizerGoldens + GetParam());
  int compared = 0;
  for (const auto& entry : tokenizer_golden("cases.json")) {
    const std::string text = bytes_of(entry["bytes"]);
    if (entry["name"] == "nested special tokens") continue;
    if (text.size() > 300 || valid_utf8_prefix(text) != text.size()) continue;
    std::vector<std::size_t> places;
    for (std::size_t at = 0; at <= text.size(); ++at)
      if (at == text.size() || utf8_start(text, at) == at) places.push_back(at);
    TokenIds ids = {7};
    const auto counts = tokenizer->append_and_count(text, places, ids);
    ASSERT_EQ(TokenIds(ids.begin() + 1, ids.end()), tokenizer->encode(text)) << entry["name"];
    ASSERT_EQ(counts.size(), places.size());
    for (std::size_t i = 0; i < places.size(); ++i) {
      // Within a special token, the text before the place may have different tokens.
      const std::size_t open = text.rfind('<', places[i] - 1), close = text.find_first_of("<>", places[i]);
      const bool is_within = places[i] > 0 && open != std::string::npos && text.find('>', open) >= places[i] &&
                             close != std::string::npos && text[close] == '>';
      if (is_within) continue;
      const TokenIds before = tokenizer->encode(text.substr(0, places[i]));
      std::size_t same = 0;
      while (same < before.size() && same + 1 < ids.size() && before[same] == ids[same + 1]) ++same;
      EXPECT_EQ(counts[i], same + 1) << entry["name"] << " at " << places[i];
    }
    ++compared;
  }
  EXPECT_GE(compared, 100);
}

// Encodes each text again, so that the tokens come from the cache, and on several threads.
TEST_P(Tokenizers, GiveTheSameIdsAgainAndOnEveryThread) {
  const auto tokenizer = load_tokenizer(kTokenizerGoldens + GetParam());
  std::string text;
  std::vector<TokenIds> first;
  const json cases = tokenizer_golden("cases.json");
  for (const auto& entry : cases) first.push_back(tokenizer->encode(bytes_of(entry["bytes"])));
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (std::size_t i = 0; i < cases.size(); ++i)
        wrong += tokenizer->encode(bytes_of(cases[i]["bytes"])) != first[i];
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

INSTANTIATE_TEST_SUITE_P(All, Tokenizers,
                         ::testing::Values("gpt2", "byte_level", "llama3", "sentence/unigram.model",
                                           "sentence/bpe.model"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return !std::isalnum(c); }, '_');
                           return name;
                         });

// Comparison with Hugging Face for tokenizers of every kind, mainly for texts with special and added tokens.
class TokenizerKinds : public ::testing::TestWithParam<const char*> {};

TEST_P(TokenizerKinds, EqualHuggingFaces) {
  const auto tokenizer = load_tokenizer(kTokenizerGoldens + "kinds/" + GetParam());
  int cases = 0;
  for (const auto& entry : tokenizer_golden("kinds/cases.json")) {
    if (entry["tokenizer"] != GetParam()) continue;
    const std::string text = bytes_of(entry["bytes"]);
    const TokenIds ids = tokenizer->encode(text);
    EXPECT_EQ(json(ids), entry["ids"]) << entry["name"];
    EXPECT_EQ(valid_utf8(tokenizer->decode(entry["ids"].get<TokenIds>())), entry["decoded"].get<std::string>())
        << entry["name"];
    ++cases;
  }
  EXPECT_GE(cases, 50);
}

INSTANTIATE_TEST_SUITE_P(All, TokenizerKinds,
                         ::testing::Values("llama2", "llama2_model", "mistral", "t5", "t5_model", "bert", "qwen2"),
                         [](const auto& info) { return std::string(info.param); });

std::vector<std::string> split(const TextPattern& pattern, std::string_view text) {
  std::vector<std::string> parts;
  pattern.visit(text, [&](std::string_view part, bool) { parts.emplace_back(part); });
  return parts;
}

TEST(TextPattern, ClassesAreThoseOfUnicode16OnEveryCodePoint) {
  const json classes = tokenizer_golden("classes.json");
  for (const auto& [pattern, ranges] : classes.items()) {
    const TextPattern inside(pattern), outside("[^" + pattern + "]");
    std::vector<bool> expected(0x110000);
    for (const auto& range : ranges)
      for (std::size_t point = range[0]; point <= range[1].get<std::size_t>(); ++point) expected[point] = true;
    int wrong = 0;
    for (char32_t point = 1; point < 0x110000; ++point) {
      if (point >= 0xD800 && point < 0xE000) continue;
      std::string text;
      for (int i = 0; i < 2; ++i) append_utf8(text, point);
      int parts_inside = 0, parts_outside = 0;
      inside.visit(text, [&](std::string_view, bool) { ++parts_inside; });
      outside.visit(text, [&](std::string_view, bool) { ++parts_outside; });
      wrong += (parts_inside == 2) != expected[point] || (parts_outside == 2) == expected[point];
    }
    EXPECT_EQ(wrong, 0) << pattern;
  }
}

TEST(TextPattern, PartsCoverTheText) {
  using Parts = std::vector<std::string>;
  EXPECT_EQ(split(TextPattern("b+"), "abbcb"), (Parts{"a", "bb", "c", "b"}));
  EXPECT_EQ(split(TextPattern("x*"), "axxb\u00e9"), (Parts{"", "a", "xx", "b", "", "\u00e9", ""}));
  EXPECT_EQ(split(TextPattern(R"([^\s\p{L}]|\S)"), "a 1"), (Parts{"a", " ", "1"}));
  EXPECT_EQ(split(TextPattern(R"(\[\s])"), "a[ ]"), (Parts{"a", "[ ]"}));  // an escaped bracket opens no class
  EXPECT_EQ(split(TextPattern("a"), ""), Parts{});
}

TEST(TextPattern, HostilePatternsEnd) {
  EXPECT_THROW(TextPattern("(a"), InputError);
  EXPECT_THROW(split(TextPattern("(?:a|aa|aaa)+$"), std::string(60, 'a') + "!"), InputError);
  EXPECT_EQ(split(TextPattern("(?:a|b|cc)+"), std::string(1'000'000, 'a')).size(), 1u);
}

// Returns a random text of letters, digits, marks, blanks and other characters that the patterns distinguish.
std::string random_text(std::uint32_t& state) {
  static const std::vector<std::string> kPieces = {
      "a",      "B",          "s",          "'",      "'s",      "'S",           "'\u017f",
      "'LL",    "'ve",        "'r",         "\u00e9", "e\u0301", "\u0939\u093f", "\u6f22",
      "\u1c89", "\U00010d40", "1",          "23",     "\u0663",  "\u00b2",       "\u2167",
      " ",      "  ",         "\n",         "\r\n",   "\t",      "\u00a0",       "\u3000",
      "\u2028", "\u180e",     "\u200b",     "\u200d", ".",       "!?",           "(",
      "_",      "-",          "\U0001f469", "\ufe0f", "\u0378",  "\u0085"};
  std::string text;
  const auto random = [&](std::size_t below) { return (state = state * 1664525 + 1013904223) % 65536 * below / 65536; };
  for (std::size_t i = 0, count = random(14); i < count; ++i) text += kPieces[random(kPieces.size())];
  return text;
}

TEST(TextPattern, OwnScannersMatchOniguruma) {
  const std::string llama3 =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  std::string qwen2 = llama3;
  qwen2.erase(qwen2.find("{1,3}"), 5);
  for (const std::string& pattern : {std::string(kGpt2Pattern), llama3, qwen2}) {
    ASSERT_NE(word_scanner_of(pattern), nullptr);
    const TextPattern own(pattern), engine(pattern, false);
    std::uint32_t state = 3;
    for (int round = 0; round < 20'000; ++round) {
      const std::string text = random_text(state);
      ASSERT_EQ(split(own, text), split(engine, text)) << json(text).dump() << pattern;
    }
    for (char32_t point = 1; point < 0x110000; ++point) {
      if (point >= 0xD800 && point < 0xE000) continue;
      std::string text = "a1'";
      append_utf8(text, point);
      ASSERT_EQ(split(own, text + " x"), split(engine, text + " x")) << static_cast<std::uint32_t>(point) << pattern;
    }
  }
}

TEST(MergeTable, LongPiecesMergeAsShortOnes) {
  // aa, ab, aab, aaaa: overlapping candidates of every rank
  const std::vector<Merge> merges{{0, 0, 2}, {0, 1, 3}, {2, 1, 4}, {2, 2, 5}, {3, 3, 6}, {1, 3, 7}};
  const MergeTable table(merges);
  std::uint32_t state = 1;
  for (int round = 0; round < 300; ++round) {
    std::vector<std::int32_t> symbols;
    for (int i = 0; i < 1 + round; ++i) symbols.push_back((state = state * 1664525 + 1013904223) >> 30 ? 0 : 1);
    // By definition, the leftmost pair of the lowest rank is merged, repeatedly.
    std::vector<std::int32_t> want = symbols;
    for (std::size_t rank = 0; rank < merges.size();) {
      const auto& [left, right, result] = merges[rank++];
      for (std::size_t i = 0; i + 1 < want.size(); ++i)
        if (want[i] == left && want[i + 1] == right) {
          want[i] = result;
          want.erase(want.begin() + static_cast<std::ptrdiff_t>(i) + 1);
          rank = 0;
        }
    }
    table.merge(symbols);
    EXPECT_EQ(symbols, want) << round;
  }
}

TEST(Tokenizer, BytesAreTheirOwnTokens) {
  const auto tokenizer = load_tokenizer("bytes");
  EXPECT_EQ(load_tokenizer("byte")->kind(), tokenizer->kind());  // its former name
  const std::string bytes("a\0\xff\xe4", 4);
  EXPECT_EQ(tokenizer->encode(bytes), (TokenIds{97, 0, 255, 228}));
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(bytes)), bytes);
  EXPECT_EQ(tokenizer->size(), 256);
  EXPECT_FALSE(tokenizer->special().end);
  EXPECT_THROW(tokenizer->decode(TokenIds{256}), InputError);
  EXPECT_THROW(tokenizer->decode(TokenIds{-1}), InputError);
}

TEST(Tokenizer, SpecialTokensAreThoseOfTheFolder) {
  const auto gpt2 = load_tokenizer(kTokenizerGoldens + "gpt2");
  EXPECT_EQ(gpt2->special().end, gpt2->encode("<|endoftext|>").at(0));
  EXPECT_EQ(gpt2->size(), *gpt2->special().end + 1);
  const auto llama3 = load_tokenizer(kTokenizerGoldens + "llama3");
  EXPECT_EQ(llama3->encode("<|begin|><|end|>"), (TokenIds{*llama3->special().begin, *llama3->special().end}));
  EXPECT_FALSE(llama3->special().padding);
  const auto sentence = load_tokenizer(kTokenizerGoldens + "sentence/bpe.model");
  EXPECT_EQ(sentence->special().unknown, 0);
  EXPECT_EQ(sentence->special().begin, 1);
  EXPECT_EQ(sentence->special().end, 2);
  EXPECT_FALSE(sentence->special().padding);
  const auto word_piece = load_tokenizer(std::string(GANTRY_SOURCE_DIR) + "/tests/golden/word_piece/vocab.txt");
  EXPECT_EQ(word_piece->special().end, word_piece->encode("[SEP]").at(0));
  EXPECT_EQ(word_piece->decode(word_piece->encode("hello caf\xff, the dogs.")), "hello caf, the dogs.");
}

}  // namespace
}  // namespace gantry
