// WordPiece compared with Hugging Face's BertTokenizerFast: tests/golden/word_piece.
#include "gantry/data/word_piece.h"

#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "gantry/core/error.h"
#include "thrown_by.h"

namespace gantry {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;

const fs::path kWordPieceGoldens = fs::path(GANTRY_SOURCE_DIR) / "tests/golden/word_piece";

json word_piece_golden(const std::string& name) { return json::parse(std::ifstream(kWordPieceGoldens / name)); }

std::vector<std::string> vocabulary() {
  std::ifstream file(kWordPieceGoldens / "vocab.txt");
  std::vector<std::string> tokens;
  for (std::string token; std::getline(file, token);) tokens.push_back(token);
  return tokens;
}

WordPiece small(const WordPieceOptions& options = {}) { return WordPiece(vocabulary(), options); }

json to_json(const std::vector<ByteSpan>& spans) {
  json list = json::array();
  for (const auto& span : spans) list.push_back({span.begin, span.end});
  return list;
}

class Folder : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(::testing::TempDir()) / ("gantry_word_piece_" + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  void write(const std::string& name, const std::string& bytes) {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
  }
  std::string fault() const {
    return testing::thrown_by<InputError>([&] { WordPiece::load(folder_.string()); });
  }
  fs::path folder_;
};

constexpr const char* kSpecial = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n";

TEST(WordPiece, EqualsHuggingFaceOnHardText) {
  int cases = 0;
  for (const auto& group : word_piece_golden("tokens.json")) {
    WordPieceOptions options{.lower_case = group["do_lower_case"],
                             .tokenize_chinese_chars = group["tokenize_chinese_chars"]};
    if (!group["strip_accents"].is_null()) options.strip_accents = group["strip_accents"].get<bool>();
    const WordPiece tokenizer = small(options);
    for (const auto& entry : group["cases"]) {
      const Tokens tokens = tokenizer.tokenize(entry["text"].get<std::string>());
      EXPECT_EQ(json(tokens.ids), entry["ids"]) << entry["name"] << ", lower case " << options.lower_case;
      EXPECT_EQ(to_json(tokens.offsets), entry["offsets"]) << entry["name"] << ", lower case " << options.lower_case;
      ++cases;
    }
  }
  EXPECT_GT(cases, 130);
}

TEST(WordPiece, WindowsOfPairsEqualHuggingFace) {
  const WordPiece tokenizer = small();
  for (const auto& pair : word_piece_golden("windows.json")) {
    const EncodeOptions options{.max_length = pair["max_length"], .stride = pair["stride"]};
    const auto first = pair["first"].get<std::string>(), second = pair["second"].get<std::string>();
    const auto windows = tokenizer.encode_pair(first, second, options);
    const Tokens tokens = tokenizer.tokenize(second);
    ASSERT_EQ(windows.size(), pair["windows"].size()) << pair["max_length"] << " " << pair["stride"];
    for (std::size_t i = 0; i < windows.size(); ++i) {
      const auto& want = pair["windows"][i];
      EXPECT_EQ(json(windows[i].ids), want["ids"]);
      EXPECT_EQ(json(windows[i].token_types), want["token_types"]);
      EXPECT_EQ(json(windows[i].attention_mask), want["attention_mask"]);
      EXPECT_EQ(to_json(windows[i].offsets), want["offsets"]);
      for (auto t = windows[i].second_begin; t < windows[i].second_end; ++t)
        EXPECT_EQ(windows[i].ids[t], tokens.ids[windows[i].second_first + t - windows[i].second_begin]);
    }
  }
}

TEST(WordPiece, OneTextIsTruncatedAndPadded) {
  const WordPiece tokenizer = small();
  const auto id = [&](const char* token) { return *tokenizer.id_of(token); };
  const Encoding padded = tokenizer.encode("hello world", {.max_length = 6});
  EXPECT_EQ(padded.ids,
            (std::vector<std::int64_t>{tokenizer.classifier_id(), id("hello"), id("world"), tokenizer.separator_id(),
                                       tokenizer.padding_id(), tokenizer.padding_id()}));
  EXPECT_EQ(padded.attention_mask, (std::vector<std::int64_t>{1, 1, 1, 1, 0, 0}));
  EXPECT_EQ(padded.offsets[2], (ByteSpan{6, 11}));
  const Encoding truncated = tokenizer.encode("hello world paris", {.max_length = 4, .pad = false});
  EXPECT_EQ(truncated.ids,
            (std::vector<std::int64_t>{tokenizer.classifier_id(), id("hello"), id("world"), tokenizer.separator_id()}));
  EXPECT_THROW(tokenizer.encode("hello", {.max_length = 1}), UsageError);
}

TEST(WordPiece, RefusesWhatItCannotRead) {
  const WordPiece tokenizer = small();
  for (const std::string& bytes : {std::string("ab\xff"), std::string("\xed\xa0\x80"), std::string("\xc0\x80")})
    EXPECT_THROW(tokenizer.tokenize(bytes), InputError);
  try {
    tokenizer.tokenize("[SEP]ab\xe4\xb8");
    FAIL();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("byte 7 of the text: the byte is not valid UTF-8"));
  }
}

TEST(WordPiece, RefusesPairsWithoutRoomToMoveOn) {
  const WordPiece tokenizer = small();
  for (const EncodeOptions& options :
       {EncodeOptions{.max_length = 8, .stride = 3}, EncodeOptions{.max_length = 12, .stride = 7},
        EncodeOptions{.max_length = 12, .stride = -1}, EncodeOptions{.max_length = 0, .stride = 0}})
    EXPECT_THROW(tokenizer.encode_pair("the the", "of of of of of of of of of of of of", options), InputError)
        << options.max_length << " " << options.stride;
  EXPECT_EQ(tokenizer.encode_pair("the the", "of of of of of of of of", {.max_length = 12, .stride = 6}).size(), 2u);
}

TEST_F(Folder, LoadsFileOrFolderWithItsConfig) {
  write("vocab.txt", std::string(kSpecial) + "Paris\nparis\n<e1>\n");
  EXPECT_EQ(WordPiece::load((folder_ / "vocab.txt").string()).tokenize("Paris").ids, std::vector<std::int64_t>{6});
  write("tokenizer_config.json",
        R"({"do_lower_case": false, "strip_accents": null, "unk_token": {"content": "[UNK]"}, "model_max_length": 1e30,
            "added_tokens_decoder": {"7": {"content": "<e1>", "lstrip": false, "special": true}}})");
  const WordPiece cased = WordPiece::load(folder_.string());
  EXPECT_EQ(cased.tokenize("Paris<e1>PARIS").ids, (std::vector<std::int64_t>{5, 7, 1}));
  EXPECT_EQ(cased.size(), 8);
  for (const char* more : {R"(["<e1>"])", R"([{"content": "<e1>"}])", R"({"entity_token": "<e1>"})"}) {
    write("tokenizer_config.json", std::string(R"({"additional_special_tokens": )") + more + "}");
    EXPECT_EQ(WordPiece::load(folder_.string()).tokenize("Paris<e1>").ids, (std::vector<std::int64_t>{6, 7})) << more;
  }
}

TEST_F(Folder, FilesNextToTheVocabularyAddTokens) {
  write("vocab.txt", std::string(kSpecial) + "a\n");
  write("added_tokens.json", R"({"[E1]": 8})");
  write("special_tokens_map.json", R"({"additional_special_tokens": ["[E1]", "[E2]"], "cls_token": "[E2]"})");
  const WordPiece tokenizer = WordPiece::load(folder_.string());
  EXPECT_EQ(tokenizer.size(), 8);
  EXPECT_EQ(tokenizer.classifier_id(), 7);
  EXPECT_EQ(tokenizer.tokenize("A[E1]a[E2]").ids, (std::vector<std::int64_t>{5, 6, 5, 7}));
  fs::remove(folder_ / "special_tokens_map.json");
  EXPECT_THAT(fault(), HasSubstr("vocab.txt: the added token '[E1]' has normalized: true; expected false"));
}

TEST_F(Folder, LinesMayEndInCarriageReturnAndTheLastOfEqualOnesCounts) {
  write("vocab.txt", "[PAD]\r\n[UNK]\r\n[CLS]\r\n[SEP]\r\n[MASK]\r\na\r\n\r\na");
  const WordPiece tokenizer = WordPiece::load(folder_.string());
  EXPECT_EQ(tokenizer.tokenize("a").ids, std::vector<std::int64_t>{7});
  EXPECT_EQ(tokenizer.size(), 8);
}

TEST_F(Folder, BadFilesAreNamed) {
  EXPECT_THAT(fault(), HasSubstr("vocab.txt: No such file or directory"));
  write("vocab.txt", "");
  EXPECT_THAT(fault(), HasSubstr("vocab.txt: the file has 0 bytes"));
  write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[MASK]\n");
  EXPECT_THAT(fault(), HasSubstr("there is no special token '[SEP]' among the 4"));
  write("vocab.txt", std::string(kSpecial) + "\xff\n");
  EXPECT_THAT(fault(), HasSubstr("vocab.txt:6: the token is not valid UTF-8"));
  write("vocab.txt", kSpecial);
  write("tokenizer_config.json", "[");
  EXPECT_THAT(fault(), HasSubstr("tokenizer_config.json: the text is not JSON at byte"));
  write("tokenizer_config.json", R"({"do_lower_case": "yes"})");
  EXPECT_THAT(fault(), HasSubstr("tokenizer_config.json.do_lower_case: the value is \"yes\"; expected true or false"));
  write("tokenizer_config.json", R"({"cls_token": 3})");
  EXPECT_THAT(fault(), HasSubstr("cls_token: the value is 3"));
  const std::pair<const char*, const char*> added[] = {
      {R"({"3": {"content": "[CLS]"}})", "added_tokens_decoder.3: '[CLS]' is 3 here and 2 in the vocabulary"},
      {R"({"x": {"content": "[CLS]"}})", "added_tokens_decoder.x: the key is not an id"},
      {R"({"2": "[CLS]"})", "added_tokens_decoder.2: the value is \"[CLS]\"; expected an object"},
      {R"({"2": {"content": "[CLS]", "lstrip": true}})",
       "vocab.txt: the added token '[CLS]' has lstrip: true; expected false"},
      {R"([])", "added_tokens_decoder: the value is array; expected an object"},
      {R"({}, "added_tokens_decoder": {})", "the key 'added_tokens_decoder' appears twice"},
  };
  for (const auto& [value, said] : added) {
    write("tokenizer_config.json", std::string(R"({"added_tokens_decoder": )") + value + "}");
    EXPECT_THAT(fault(), HasSubstr(said));
  }
}

}  // namespace
}  // namespace gantry
