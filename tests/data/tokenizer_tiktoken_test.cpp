// Files of tiktoken's ranks, compared with the package tiktoken: tests/golden/tokenizers/tiktoken.
#include <filesystem>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gantry/core/base/base64.h"
#include "gantry/core/error.h"
#include "gantry/data/tokenizers/tiktoken_file.h"
#include "gantry/data/tokenizers/tokenizer.h"
#include "program.h"
#include "thrown_by.h"

namespace gantry {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;
using testing::read_file;
using testing::ScratchFolder;

const std::string kTiktokenGoldens = std::string(GANTRY_SOURCE_DIR) + "/tests/golden/tokenizers/tiktoken/";

std::string tiktoken_fault(const std::string& path) {
  return testing::thrown_by<InputError>([&] { load_tokenizer(path); });
}

std::string rank_line(const std::string& token, std::size_t rank) {
  return fmt::format("{} {}\n", encode_base64(token), rank);
}

// The 256 bytes, then tokens of four bytes that are not made of others.
std::string ranks_of_size(std::size_t size) {
  std::string lines;
  for (std::size_t rank = 0; rank < size; ++rank) {
    const auto byte = [&](int shift) { return static_cast<char>(rank >> shift & 0xFF); };
    lines += rank_line(rank < 256 ? std::string(1, byte(0)) : std::string{'\x7F', byte(0), byte(8), byte(16)}, rank);
  }
  return lines;
}

json decoder_of_specials(const json& contents, std::size_t first) {
  json decoder = json::object();
  for (const auto& content : contents) decoder[std::to_string(first++)] = {{"content", content}, {"special", true}};
  return decoder;
}

TEST(TiktokenFile, IdsEqualThoseOfTiktoken) {
  const json goldens = json::parse(read_file(kTiktokenGoldens + "cases.json"));
  int compared = 0;
  for (const auto& group : goldens["groups"])
    for (const auto& [name, pattern] : group["patterns"].items()) {
      const ScratchFolder scratch;
      const std::string ranks = read_file(kTiktokenGoldens + group["file"].get<std::string>());
      const auto count = static_cast<std::size_t>(std::ranges::count(ranks, '\n'));
      scratch.write("tokenizer.model", ranks);
      scratch.write(
          "tokenizer_config.json",
          json({{"pat_str", pattern}, {"added_tokens_decoder", decoder_of_specials(goldens["special"], count)}})
              .dump());
      const auto tokenizer = load_tokenizer(scratch.path());
      EXPECT_EQ(tokenizer->kind(), "byte-level BPE");
      EXPECT_EQ(tokenizer->size(), static_cast<std::int64_t>(count + goldens["special"].size()));
      for (const auto& entry : group["cases"]) {
        const std::string text = entry["text"];
        EXPECT_EQ(json(tokenizer->encode(text)), entry["ids"][name]) << name << ": " << entry["name"];
        EXPECT_EQ(tokenizer->decode(entry["ids"][name].get<TokenIds>()), text) << name << ": " << entry["name"];
        ++compared;
      }
    }
  EXPECT_GE(compared, 150);
}

// "aaa" has two splits into tokens, of which only one can occur.
TEST(TiktokenFile, TheLowestRankIsJoinedFirst) {
  const ScratchFolder scratch;
  std::string ranks = ranks_of_size(256);
  std::size_t rank = 256;
  for (const char* token : {"abc", "bc", "ab", "cd", "aa", "aaa"}) ranks += rank_line(token, rank++);
  scratch.write("a.tiktoken", ranks);
  scratch.write("tokenizer_config.json", R"({"pat_str": "\\S+|\\s+"})");
  const auto tokenizer = load_tokenizer(scratch / "a.tiktoken");
  EXPECT_EQ(tokenizer->encode("abc"), TokenIds{256});
  EXPECT_EQ(tokenizer->encode("xabcd"), (TokenIds{'x', 256, 'd'}));
  EXPECT_EQ(tokenizer->encode("xabdcd"), (TokenIds{'x', 258, 'd', 259}));
  EXPECT_EQ(tokenizer->encode("aaaa"), (TokenIds{260, 260}));
  EXPECT_EQ(tokenizer->encode("aaaaa"), (TokenIds{260, 261}));
}

TEST(TiktokenFile, PublishedTokenizersAreKnownByTheirRanks) {
  struct Case {
    std::size_t ranks;
    const char* text;  // special tokens
    TokenIds ids;
    TokenIds before;
    std::int64_t size, end;
  };
  const Case cases[] = {
      {50256, "<|endoftext|>", {50256}, {}, 50257, 50256},
      {100256, "<|endoftext|><|fim_suffix|><|endofprompt|>", {100257, 100260, 100276}, {}, 100277, 100257},
      {128000,
       "<|begin_of_text|><|start_header_id|><|eot_id|><|python_tag|><|reserved_special_token_247|>",
       {128000, 128006, 128009, 128010, 128255},
       {128000},
       128256,
       128001},
      {151643, "<|endoftext|><|im_end|><|extra_204|>", {151643, 151645, 151850}, {}, 151851, 151643},
      {199998, "<|endoftext|><|endofprompt|>", {199999, 200018}, {}, 200019, 199999},
  };
  for (const auto& [ranks, text, ids, before, size, end] : cases) {
    const ScratchFolder scratch;
    scratch.write("x.tiktoken", ranks_of_size(ranks));
    EXPECT_TRUE(has_tokenizer(scratch.path()));
    const auto tokenizer = load_tokenizer(scratch.path());
    EXPECT_EQ(tokenizer->encode(text), ids);
    EXPECT_EQ(tokenizer->decode(ids), text);
    EXPECT_EQ(tokenizer->decode(ids, true), "");
    EXPECT_EQ(tokenizer->surrounding().before, before) << ranks;
    EXPECT_EQ(tokenizer->size(), size);
    EXPECT_EQ(tokenizer->special().end, end);
    const bool composes = ranks == 151643;  // Qwen's tokenizer class applies NFC
    EXPECT_EQ(tokenizer->decode(tokenizer->encode("e\u0301")), composes ? "\u00e9" : "e\u0301") << ranks;
  }
}

// Kimi K2: its settings name some of the 256 tokens after the ranks.
TEST(TiktokenFile, SettingsNameTheReservedTokens) {
  const ScratchFolder scratch;
  scratch.write("tiktoken.model", ranks_of_size(163584));
  scratch.write("tokenizer_config.json", R"({"bos_token": "[BOS]", "pad_token": "[PAD]",
    "additional_special_tokens": ["<|im_end|>", "<|new|>"], "added_tokens_decoder": {
      "163584": {"content": "[BOS]", "special": true}, "163586": {"content": "<|im_end|>", "special": true},
      "163595": {"content": "<|tool|>", "special": false}, "163839": {"content": "[PAD]", "special": true}}})");
  const auto tokenizer = load_tokenizer(scratch.path());
  EXPECT_EQ(tokenizer->encode("[BOS]\u4f60<|im_end|><|tool|><|reserved_token_163587|><|new|>"),
            (TokenIds{163584, 0xE4, 0xBD, 0xA0, 163586, 163595, 163587, 163840}));
  EXPECT_EQ(tokenizer->special().begin, 163584);
  EXPECT_EQ(tokenizer->special().padding, 163839);
  EXPECT_FALSE(tokenizer->is_special(163595));
  EXPECT_EQ(tokenizer->surrounding().before, TokenIds{});
}

// As transformers 5.24 numbers them.
TEST(TiktokenFile, TokensWithoutAnIdGetTheNextOnes) {
  const ScratchFolder scratch;
  scratch.write("tokenizer.model", ranks_of_size(300));
  const auto with = [&](json settings) {
    settings["pat_str"] = R"(\S+|\s+)";
    scratch.write("tokenizer_config.json", settings.dump());
    return load_tokenizer(scratch.path());
  };
  const json names = {{"additional_special_tokens", {"<a>", "<b>"}}, {"bos_token", "<bos>"}, {"eos_token", "<a>"}};
  const auto tokenizer = with(names);
  EXPECT_EQ(tokenizer->encode("<a><b><bos>"), (TokenIds{300, 301, 302}));
  EXPECT_EQ(tokenizer->special().begin, 302);
  EXPECT_EQ(tokenizer->special().end, 300);
  json more = names;
  more["added_tokens_decoder"] = {{"305", {{"content", "<b>"}, {"special", true}}}};
  EXPECT_EQ(with(more)->encode("<a><b><bos>"), (TokenIds{306, 305, 307}));
  scratch.write("added_tokens.json", R"({"<b>": 305, "<c>": 307})");
  EXPECT_EQ(with(more)->encode("<a><b><bos><c>"), (TokenIds{308, 305, 309, 307}));
  scratch.write("added_tokens.json", R"({"<c>": "x"})");
  EXPECT_THAT(tiktoken_fault(scratch.path()), HasSubstr("added_tokens.json: '<c>': the value is \"x\""));
}

TEST(TiktokenFile, OtherFilesOfADirectoryComeFirst) {
  const ScratchFolder scratch;
  scratch.write("qwen.tiktoken", ranks_of_size(300));
  scratch.write("tokenizer_config.json", R"({"pat_str": "\\S+|\\s+"})");
  EXPECT_EQ(load_tokenizer(scratch.path())->size(), 300);
  scratch.write("tokenizer.model", ranks_of_size(290));
  EXPECT_EQ(load_tokenizer(scratch.path())->size(), 290);
  EXPECT_EQ(load_tokenizer(scratch / "qwen.tiktoken")->size(), 300);
  fs::remove(scratch / "tokenizer_config.json");
  fs::copy(kTiktokenGoldens + "../llama3/tokenizer.json", scratch / "tokenizer.json");
  EXPECT_EQ(load_tokenizer(scratch.path())->size(), load_tokenizer(kTiktokenGoldens + "../llama3")->size());
}

TEST(TiktokenFile, DamagedLinesAreNamed) {
  const std::string bytes = ranks_of_size(256);
  const std::string truncated = bytes.substr(0, bytes.rfind('\n', bytes.size() - 2) + 1);  // without the byte 0xFF
  const std::pair<std::string, const char*> cases[] = {
      {bytes + "YWI= 256 7\n", "x.tiktoken:257: the rank is '256 7'; expected the token's bytes in base64, a space"},
      {bytes + "YWI=\n", "x.tiktoken:257: the rank is ''"},
      {bytes + "YWI= -1\n", "x.tiktoken:257: the rank is '-1'"},
      {bytes + "YWI= 99999999999\n", "x.tiktoken:257: the rank is '99999999999'"},
      {bytes + "\nYW*= 256\n", "x.tiktoken:258: the token 'YW*=' is not base64"},
      {bytes + "YWI 256\n", "x.tiktoken:257: the token 'YWI' is not base64"},
      {bytes + "= 256\n", "x.tiktoken:257: the token '=' is not base64"},
      {bytes + rank_line(std::string(513, 'a'), 256), "x.tiktoken:257: the token has 513 bytes; expected a token of"},
      {bytes + rank_line("ab", 255), "x.tiktoken:257: the rank 255 is also in line 256; expected each rank once"},
      {bytes + rank_line("ab", 258), "x.tiktoken:257: the rank is 258, but no line has the rank 256; expected"},
      {bytes + rank_line("a", 256), "x.tiktoken:257: the token is also in line 98; expected each token once"},
      {truncated + rank_line("ab", 255),
       "x.tiktoken: no line has the token of the byte 0xFF; expected a token for each"},
      {"\n\n", "x.tiktoken: no line has the token of the byte 0x00"},
      {bytes + rank_line("ab", 256),
       "x.tiktoken: the file has 257 ranks, which no known tokenizer has, and it does not contain the pattern"},
  };
  const ScratchFolder scratch;
  for (const auto& [text, said] : cases)
    EXPECT_THAT(tiktoken_fault(scratch.write("x.tiktoken", text)), HasSubstr(said)) << text.substr(bytes.size());
  EXPECT_THAT(tiktoken_fault(scratch.path()), HasSubstr("add pat_str, or convert the file to tokenizer.json"));
  std::string windows = bytes + "\r\n" + rank_line("ab", 256);
  windows.insert(windows.size() - 1, "\r");
  scratch.write("tokenizer_config.json", R"({"pat_str": "\\S+|\\s+"})");
  EXPECT_EQ(load_tokenizer(scratch.write("x.tiktoken", windows))->encode("ab"), TokenIds{256});
  scratch.write("tokenizer_config.json", R"({"pat_str": "(?m)^a"})");
  EXPECT_THAT(tiktoken_fault(scratch.path()), HasSubstr("pat_str: the pattern has '(?m', which Oniguruma"));
  scratch.write("tokenizer_config.json", R"({"pat_str": 7})");
  EXPECT_THAT(tiktoken_fault(scratch.path()), HasSubstr("pat_str: the value is 7; expected a string"));
}

TEST(TiktokenFile, DamagedRanksAreReadOrRefused) {
  const std::string full = read_file(kTiktokenGoldens + "trained.tiktoken");
  const ScratchFolder scratch;
  scratch.write("tokenizer_config.json", R"({"pat_str": "\\S+|\\s+"})");
  std::uint32_t state = 5;
  const auto random = [&](std::size_t below) { return (state = state * 1664525 + 1013904223) % 65536 * below / 65536; };
  int refused = 0;
  for (int round = 0; round < 300; ++round) {
    std::string bytes = full.substr(0, round % 4 == 0 ? 1 + random(full.size() - 1) : full.size());
    bytes[random(bytes.size())] = static_cast<char>(random(256));
    try {
      load_tokenizer(scratch.write("tokenizer.model", bytes))->encode("The quick brown fox, 1984!");
    } catch (const InputError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 200);
}

TEST(TiktokenPattern, IsSpelledForOniguruma) {
  const std::pair<const char*, const char*> cases[] = {
      {R"(\p{N}{1,3}+|a)", R"((?>\p{N}{1,3})|a)"},
      {R"([^a\]{}$^]{2,}+$)", R"((?>[^a\]{}$^]{2,})\z)"},
      {R"(^(?:a(b)){2}+)", R"(\A(?>(?:a(b)){2}))"},
      {"x\u00e9{1,2}+", "x(?>\u00e9{1,2})"},
      {R"([[:alpha:]&&[^]$]]{3}+\$)", R"((?>[[:alpha:]&&[^]$]]{3})\$)"},
      {R"(\s+(?!\S)|\s++$)", R"(\s+(?!\S)|\s++\z)"},
  };
  for (const auto& [pattern, spelled] : cases) EXPECT_EQ(oniguruma_pattern(pattern, "here"), spelled);
  for (const char* unfinished : {"\\", "\\p{", "[", "[[:", "a{", "(", "(?", ")", "[a", "{2}+", "]"})
    testing::thrown_by<InputError>([&] { oniguruma_pattern(unfinished, "here"); });
  for (const char* other : {"(?x: a)", "(?P<n>a)", "(?i)a", R"([\w--\d])", "[a~~b]"})
    EXPECT_THAT(testing::thrown_by<InputError>([&] { oniguruma_pattern(other, "here"); }),
                HasSubstr("here: the pattern has '"))
        << other;
}

}  // namespace
}  // namespace gantry
