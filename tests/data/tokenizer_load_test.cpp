// Tokenizer files that are broken, hostile or of another kind.
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gantry/core/error.h"
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

const std::string kTokenizerFolders = std::string(GANTRY_SOURCE_DIR) + "/tests/golden/tokenizers/";

std::string fault(const std::string& path) {
  return testing::thrown_by<InputError>([&] { load_tokenizer(path); });
}

// Returns the error for Llama 3's golden file with one value changed. `pointer` is a JSON pointer such as
// /model/vocab.
std::string fault_with(const std::string& pointer, const json& value) {
  const ScratchFolder scratch;
  json file = json::parse(read_file(kTokenizerFolders + "llama3/tokenizer.json"));
  file[json::json_pointer(pointer)] = value;
  return fault(scratch.write("tokenizer.json", file.dump()));
}

TEST(LoadTokenizer, WhatIsWrongIsNamed) {
  struct Case {
    const char* pointer;
    json value;
    const char* said;
  };
  const Case cases[] = {
      {"/model/vocab", 3, "model.vocab: the value is 3; expected an object"},
      {"/model/vocab/!", -1, "model.vocab: '!': the value is -1; expected an id from 0 to"},
      {"/model/vocab/!", 4'000'000'000u, "model.vocab: '!': the value is 4000000000"},
      {"/model/vocab/!", 7.5, "model.vocab: '!': the value is 7.5"},
      {"/model/vocab/!", 1, "the id 1 belongs to '!' and to '\"'"},
      {"/model/merges", "x", "model.merges: the value is \"x\"; expected a list"},
      {"/model/merges/0", "abc", "model.merges[0]: the line is 'abc'; expected two tokens"},
      {"/model/merges/0", "a b c", "model.merges[0]: the line is 'a b c'"},
      {"/model/merges/0", json::array({"a"}), "model.merges[0]: the value is array; expected two tokens"},
      {"/model/merges/0", json::array({"a", 7}), "model.merges[0][1]: the value is 7; expected a string"},
      {"/model/merges/0", json::array({"!", "!"}), "'!!' is not in the vocabulary"},
      {"/model/ignore_merges", "yes", "model.ignore_merges: the value is \"yes\""},
      {"/model/dropout", 0.1, "model.dropout: the value is 0.1; expected null"},
      {"/normalizer", {{"type", "Unknown"}}, "normalizer.type: the value is \"Unknown\"; expected Sequence, NFC"},
      {"/decoder", {{"type", "Unknown"}}, "decoder.type: the value is \"Unknown\"; expected BPEDecoder"},
      {"/post_processor", {{"type", "Unknown"}}, "post_processor.type: the value is \"Unknown\"; expected Bert"},
      {"/post_processor",
       {{"type", "BertProcessing"}, {"cls", {"a", 1}}, {"sep", {"b", 9'999'999}}},
       "post_processor: token 9999999 is not in the vocabulary"},
      {"/pre_tokenizer/pretokenizers/0/pattern/Regex", "(a",
       "tokenizer's pattern (a: end pattern with unmatched parenthesis; expected a regular expression that Oniguruma"},
      {"/pre_tokenizer/pretokenizers/0/behavior", "Kept", "behavior: the value is \"Kept\"; expected Isolated"},
      {"/pre_tokenizer/pretokenizers/0/type", "FixedLength", "type: the value is \"FixedLength\"; expected Bert"},
      {"/added_tokens/0/id", 1 << 30, "added_tokens[0].id: the value is 1073741824"},
      {"/added_tokens/0/id", 0, "added_tokens[0]: 0 is '<|begin|>' here and '!' in the vocabulary"},
      {"/added_tokens/0/content", "", "added_tokens[0].content: the value is \"\"; expected a token"},
      {"/added_tokens/0/content", "!", "'!' is"},
      {"/added_tokens/0/lstrip", 1, "lstrip: the value is 1"},
      {"/model/type", "Words", "model.type: the value is \"Words\"; expected BPE, Unigram, WordPiece or WordLevel"},
      {"/model", nullptr, "model: the value is null; expected an object"},
  };
  for (const auto& [pointer, value, said] : cases) EXPECT_THAT(fault_with(pointer, value), HasSubstr(said)) << pointer;
  EXPECT_EQ(fault_with("/model/dropout", 0.0), "no error");
}

TEST(LoadTokenizer, FilesThatAreNoTokenizersAreNamed) {
  const ScratchFolder scratch;
  EXPECT_THAT(fault(scratch / "none"),
              HasSubstr("none: the path does not exist; expected 'bytes', or a file or directory"));
  EXPECT_THAT(fault(scratch.path()), HasSubstr("has no tokenizer; expected tokenizer.json"));
  EXPECT_THAT(fault(scratch.write("data.bin", "x")), HasSubstr("the file is not a tokenizer file"));
  EXPECT_THAT(fault(scratch.write("a.model", "not a model")),
              HasSubstr("a.model: the file is not a SentencePiece model"));
  EXPECT_THAT(fault(scratch.write("b.model", "")), HasSubstr("b.model: the file has 0 bytes"));
  EXPECT_THAT(fault(scratch.write("tokenizer.json", "{")), HasSubstr("tokenizer.json: the text is not JSON"));
  EXPECT_THAT(fault(scratch.write("tokenizer.json", "[]")),
              HasSubstr("tokenizer.json: the value is array; expected an object"));
  EXPECT_THAT(fault(scratch.write("tokenizer.json", R"({"model": {}, "model": {}})")),
              HasSubstr("'model' appears twice"));
  const std::string deep(100'000, '[');
  EXPECT_THAT(fault(scratch.write("tokenizer.json", deep)), HasSubstr("is nested deeper than 64"));
  EXPECT_THAT(fault(scratch.write("vocab.json", R"({"a": 0})")), HasSubstr("merges.txt: "));
  scratch.write("merges.txt", "#version: 0.2\na b\n");
  EXPECT_THAT(fault(scratch / "vocab.json"), HasSubstr("model.merges[0]: 'b' is not in the vocabulary"));
}

TEST(LoadTokenizer, AFolderIsReadByWhatItHas) {
  const ScratchFolder scratch;
  fs::copy(kTokenizerFolders + "sentence/bpe.model", scratch / "spiece.model");
  EXPECT_EQ(load_tokenizer(scratch.path())->kind(), "BPE");
  EXPECT_EQ(load_tokenizer(scratch / "spiece.model")->kind(), "SentencePiece");
  fs::copy(kTokenizerFolders + "sentence/unigram.model", scratch / "tokenizer.model");
  EXPECT_EQ(load_tokenizer(scratch.path())->size(),
            load_tokenizer(kTokenizerFolders + "sentence/unigram.model")->size());
  scratch.write("tokenizer.json", R"({"model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0]]}})");
  EXPECT_EQ(load_tokenizer(scratch.path())->size(), 1);  // tokenizer.json has priority, as for T5
  fs::copy(kTokenizerFolders + "llama3/tokenizer.json", scratch / "tokenizer.json",
           fs::copy_options::overwrite_existing);
  EXPECT_EQ(load_tokenizer(scratch.path())->kind(), "byte-level BPE");
  EXPECT_FALSE(load_tokenizer(scratch.path())->special().end);  // no tokenizer_config.json names one
}

TokenIds ids_in(const Tokenizer& tokenizer, const std::string& text) {
  TokenIds ids;
  tokenizer.append(text, ids);
  return ids;
}

TEST(LoadTokenizer, TokensThatTokenizerJsonLacksGetTheNextIds) {
  const ScratchFolder scratch;
  fs::copy(kTokenizerFolders + "llama3/tokenizer.json", scratch / "tokenizer.json");
  const auto before = load_tokenizer(scratch.path());
  const std::int64_t size = before->size();
  json added;
  added["<aa>"] = size + 7;
  added["<bb>"] = size + 2;
  scratch.write("added_tokens.json", added.dump());
  scratch.write("special_tokens_map.json", R"({"pad_token": {"content": "[PAD]", "lstrip": true}})");
  const std::string named =
      R"("eos_token": "<|nothing|>", "additional_special_tokens": ["<|b|>", "<|begin|>", "<|a|>"])";
  scratch.write("tokenizer_config.json", "{" + named + "}");
  const auto tokenizer = load_tokenizer(scratch.path());
  EXPECT_EQ(tokenizer->size(), size + 6);
  EXPECT_EQ(tokenizer->special().end, size + 2);
  EXPECT_EQ(tokenizer->special().padding, size + 3);
  EXPECT_EQ(ids_in(*tokenizer, "<bb><aa><|nothing|>  [PAD]<|b|><|a|>"),
            (TokenIds{size, size + 1, size + 2, size + 3, size + 4, size + 5}));
  EXPECT_EQ(ids_in(*tokenizer, "<|begin|>"), ids_in(*before, "<|begin|>"));
  const TokenIds ids = {size, size + 2, size + 5};
  EXPECT_EQ(tokenizer->decode(ids), "<bb><|nothing|><|a|>");
  EXPECT_EQ(tokenizer->decode(ids, /*skip_specials=*/true), "<bb>");

  // With added_tokens_decoder, added_tokens.json and special_tokens_map.json have no effect.
  fs::remove(scratch / "special_tokens_map.json");
  scratch.write("tokenizer_config.json", "{" + named + R"(, "added_tokens_decoder": {")" + std::to_string(size) +
                                             R"(": {"content": "<|a|>", "special": true}}})");
  EXPECT_EQ(load_tokenizer(scratch.path())->size(), size + 3);
  EXPECT_EQ(load_tokenizer(scratch.path())->special().end, size + 1);
}

TEST(LoadTokenizer, ATokenOfTheVocabularyKeepsItsIdAsASpecialToken) {
  const ScratchFolder scratch;
  fs::copy(kTokenizerFolders + "llama3/tokenizer.json", scratch / "tokenizer.json");
  const std::int64_t size = load_tokenizer(scratch.path())->size();
  scratch.write("tokenizer_config.json", R"({"pad_token": "!"})");
  const auto tokenizer = load_tokenizer(scratch.path());
  EXPECT_EQ(tokenizer->size(), size);
  EXPECT_EQ(tokenizer->special().padding, 0);
  EXPECT_EQ(ids_in(*tokenizer, "!!!"), (TokenIds{0, 0, 0}));
}

TEST(LoadTokenizer, WhispersFirstTokensMayBeAdded) {
  const ScratchFolder scratch;
  for (const char* name : {"vocab.json", "merges.txt"}) fs::copy(kTokenizerFolders + "gpt2/" + name, scratch / name);
  const std::int64_t size = load_tokenizer(scratch.path())->size();
  const std::string first = std::to_string(size), second = std::to_string(size + 1);
  scratch.write("tokenizer_config.json", R"({"tokenizer_class": "WhisperTokenizer"})");
  scratch.write("added_tokens.json",
                R"({"<|startoftranscript|>": )" + first + R"(, "<|notimestamps|>": )" + second + "}");
  EXPECT_EQ(load_tokenizer(scratch.path())->surrounding().before, (TokenIds{size, size + 1}));
  fs::remove(scratch / "added_tokens.json");
  scratch.write("tokenizer_config.json", R"({"tokenizer_class": "WhisperTokenizer", "added_tokens_decoder": {")" +
                                             first + R"(": {"content": "<|startoftranscript|>"}, ")" + second +
                                             R"(": {"content": "<|notimestamps|>"}}})");
  EXPECT_EQ(load_tokenizer(scratch.path())->surrounding().before, (TokenIds{size, size + 1}));
}

TEST(LoadTokenizer, AMaskTokenMayRemoveTheBlankBeforeIt) {
  const std::string mask = R"("mask_token": {"content": "<mask>", "lstrip": true})";
  for (const char* file : {"special_tokens_map.json", "tokenizer_config.json"}) {
    const ScratchFolder scratch;
    for (const char* name : {"vocab.json", "merges.txt"}) fs::copy(kTokenizerFolders + "gpt2/" + name, scratch / name);
    const std::int64_t size = load_tokenizer(scratch.path())->size();
    scratch.write("added_tokens.json", "{\"<mask>\": " + std::to_string(size) + "}");
    scratch.write("tokenizer_config.json", R"({"tokenizer_class": "RobertaTokenizer"})");
    scratch.write(file, R"({"tokenizer_class": "RobertaTokenizer", )" + mask + "}");
    const auto tokenizer = load_tokenizer(scratch.path());
    TokenIds expected = ids_in(*tokenizer, "a");
    expected.push_back(size);
    EXPECT_EQ(ids_in(*tokenizer, "a <mask>"), expected) << file;
    EXPECT_EQ(tokenizer->special().mask, size) << file;
  }
}

TEST(LoadTokenizer, VocabTxtHasAddedTokens) {
  const ScratchFolder scratch;
  scratch.write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\n");
  scratch.write("added_tokens.json", R"({"newtok": 7, "[E1]": 8, "[E2]": 9})");
  scratch.write("tokenizer_config.json", R"({"additional_special_tokens": ["[E2]"]})");
  const auto tokenizer = load_tokenizer(scratch.path());
  EXPECT_EQ(tokenizer->size(), 10);
  // Added tokens that are not special are found in the lower-cased text.
  EXPECT_EQ(tokenizer->encode_surrounded("a NEWTOK b [e1] [E2]"), (TokenIds{2, 5, 7, 6, 8, 9, 3}));
}

TEST(LoadTokenizer, Gpt2FilesTakeTheirConfigsTokens) {
  const ScratchFolder scratch;
  for (const char* name : {"vocab.json", "merges.txt"}) fs::copy(kTokenizerFolders + "gpt2/" + name, scratch / name);
  const std::int64_t size = load_tokenizer(scratch.path())->size();
  scratch.write("tokenizer_config.json",
                R"({"pad_token": "<mark>", "add_prefix_space": true, "added_tokens_decoder": {")" +
                    std::to_string(size) + R"(": {"content": "<x>", "lstrip": true}}})");
  const auto tokenizer = load_tokenizer(scratch.path());
  EXPECT_EQ(tokenizer->special().padding, size + 1);
  EXPECT_EQ(tokenizer->encode("<mark>  <x>"), (TokenIds{size + 1, size}));
  EXPECT_EQ(tokenizer->encode("the"), tokenizer->encode(" the"));
}

// As in transformers 5.24, which ignores the ids of added_tokens.json except for their order.
TEST(LoadTokenizer, FilesOfVocabulariesGiveAddedTokensTheNextIds) {
  const ScratchFolder bert;
  bert.write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\n");
  bert.write("added_tokens.json", R"({"newtok": 12, "[E1]": 9, "[CLS]": 2})");
  bert.write("tokenizer_config.json", R"({"additional_special_tokens": ["[E2]", "b"], "pad_token": "[P]"})");
  const auto words = load_tokenizer(bert.path());
  EXPECT_EQ(words->size(), 11);
  EXPECT_EQ(words->special().padding, 9);
  EXPECT_EQ(words->encode_surrounded("a NEWTOK b [e1] [E2] [CLS] [P]"), (TokenIds{2, 5, 8, 6, 7, 10, 2, 9, 3}));
  EXPECT_EQ(words->decode(words->encode("a [CLS] [E2] b"), /*skip_specials=*/true), "a");

  const ScratchFolder gpt2;
  for (const char* name : {"vocab.json", "merges.txt"}) fs::copy(kTokenizerFolders + "gpt2/" + name, gpt2 / name);
  const std::int64_t size = load_tokenizer(gpt2.path())->size();
  gpt2.write("added_tokens.json", "{\"<mark>\": " + std::to_string(size + 5) + "}");
  gpt2.write("tokenizer_config.json", R"({"pad_token": "<mark>", "extra_special_tokens": ["<x>"]})");
  const auto bytes = load_tokenizer(gpt2.path());
  EXPECT_EQ(bytes->special().padding, size);
  EXPECT_EQ(bytes->encode("<mark><x>"), (TokenIds{size, size + 1}));
}

// The same for a tokenizer whose tokens consist of characters, not of bytes.
std::string piece_fault_with(const std::string& kind, const std::string& pointer, const json& value) {
  const ScratchFolder scratch;
  json file = json::parse(read_file(kTokenizerFolders + "kinds/" + kind + "/tokenizer.json"));
  file[json::json_pointer(pointer)] = value;
  return fault(scratch.write("tokenizer.json", file.dump()));
}

TEST(LoadTokenizer, WhatPiecesCantDoIsNamed) {
  struct Case {
    const char* kind;
    const char* pointer;
    json value;
    const char* said;
  };
  const Case cases[] = {
      {"llama2", "/model/dropout", 0.1, "model.dropout: the value is 0.1; expected null"},
      {"llama2", "/model/unk_token", "<none>",
       "model.unk_token: the value is \"<none>\"; expected a token of the vocabulary"},
      {"llama2", "/normalizer/normalizers/0/type", "X", "normalizers[0].type: the value is \"X\""},
      {"llama2", "/normalizer/normalizers/1/pattern/String", "", "expected a text to replace"},
      {"llama2", "/decoder/decoders/1/type", "X", "decoders[1].type: the value is \"X\""},
      {"mistral", "/pre_tokenizer/prepend_scheme", "last",
       "prepend_scheme: the value is \"last\"; expected always, first or"},
      {"mistral", "/pre_tokenizer/type", "X", "pre_tokenizer.type: the value is \"X\""},
      {"t5", "/normalizer/normalizers/0/precompiled_charsmap", "AA*", "the value is not base64"},
      {"t5", "/normalizer/normalizers/0/precompiled_charsmap", "/////w==", "and a trie of"},
      {"t5", "/model/unk_id", 100000, "model.unk_id: the value is 100000"},
      {"t5", "/model/vocab/0", json::array({"a"}),
       "model.vocab[0]: the value is array; expected a token and its score"},
  };
  for (const auto& [kind, pointer, value, said] : cases)
    EXPECT_THAT(piece_fault_with(kind, pointer, value), HasSubstr(said)) << kind << pointer;
}

TEST(LoadTokenizer, AClassDecidesHowVocabJsonIsRead) {
  const ScratchFolder scratch;
  for (const char* name : {"vocab.json", "merges.txt"}) fs::copy(kTokenizerFolders + "gpt2/" + name, scratch / name);
  const std::string text = "it.\n 12";
  const TokenIds gpt2 = load_tokenizer(scratch.path())->encode(text);
  const auto with_class = [&](const std::string& name) {
    scratch.write("tokenizer_config.json", "{\"tokenizer_class\": \"" + name + "\"}");
    return load_tokenizer(scratch.path());
  };
  EXPECT_EQ(with_class("GPT2TokenizerFast")->encode(text), gpt2);
  EXPECT_NE(with_class("Qwen2Tokenizer")->encode(text), gpt2);  // ".\n" is one piece
  EXPECT_EQ(with_class("CLIPTokenizer")->kind(), "BPE");
  with_class("RobertaTokenizer");
  with_class("WhisperTokenizer");
  scratch.write("tokenizer_config.json", R"({"tokenizer_class": "BlenderbotTokenizer"})");
  EXPECT_THAT(fault(scratch.path()),
              HasSubstr("tokenizer_class: the value is \"BlenderbotTokenizer\"; expected a class"));
}

// As in transformers 5.24, whose classes were compared with and without tokenizer.json.
TEST(LoadTokenizer, FlagsOfSurroundingTokensHaveNoEffectNextToTokenizerJson) {
  const ScratchFolder scratch;
  fs::copy(kTokenizerFolders + "kinds/t5/tokenizer.json", scratch / "tokenizer.json");
  for (const char* name : {"LlamaTokenizer", "GPT2Tokenizer", "PreTrainedTokenizerFast"})
    for (const char* flag : {"true", "false"}) {
      scratch.write("tokenizer_config.json",
                    fmt::format(R"({{"tokenizer_class": "{}", "add_bos_token": {}, "add_eos_token": {}, "bos_token":
                                    "<pad>", "eos_token": "</s>"}})",
                                name, flag, flag));
      EXPECT_EQ(load_tokenizer(scratch.path())->surrounding().before, TokenIds{}) << name << flag;
      EXPECT_EQ(load_tokenizer(scratch.path())->surrounding().after, TokenIds{1}) << name << flag;
    }
}

TEST(LoadTokenizer, OtherFilesFollowTheFlagsOfSurroundingTokensByTheirClass) {
  const auto around = [](const ScratchFolder& files, const std::string& name, const std::string& flags) {
    files.write("tokenizer_config.json", "{\"tokenizer_class\": \"" + name + "Tokenizer\"" + flags + "}");
    const auto& tokens = load_tokenizer(files.path())->surrounding();
    return std::pair(tokens.before.size(), tokens.after.size());
  };
  const std::string both = R"(, "add_bos_token": true, "add_eos_token": true)", begin = R"(, "add_bos_token": true)",
                    none = R"(, "add_bos_token": false, "add_eos_token": false)";
  using Sizes = std::pair<std::size_t, std::size_t>;

  const ScratchFolder bytes;
  for (const char* name : {"vocab.json", "merges.txt"}) fs::copy(kTokenizerFolders + "gpt2/" + name, bytes / name);
  const std::string named = R"(, "bos_token": "!", "eos_token": "!", "cls_token": "!", "sep_token": "!")";
  for (const char* name : {"GPT2", "CodeGen", "Qwen2"}) {
    EXPECT_EQ(around(bytes, name, named), Sizes(0, 0)) << name;
    EXPECT_EQ(around(bytes, name, named + both), Sizes(1, 1)) << name;
    EXPECT_EQ(around(bytes, name, named + begin), Sizes(1, 0)) << name;
  }
  for (const char* name : {"Roberta", "CLIP", "Whisper"})
    for (const std::string& flags : {both, begin, none})
      EXPECT_EQ(around(bytes, name, named + flags), around(bytes, name, named)) << name << flags;

  const ScratchFolder words;
  fs::copy(std::string(GANTRY_SOURCE_DIR) + "/tests/golden/word_piece/vocab.txt", words / "vocab.txt");
  for (const std::string& flags : {both, begin, none}) EXPECT_EQ(around(words, "Bert", flags), Sizes(1, 1)) << flags;

  const ScratchFolder pieces;
  fs::copy(kTokenizerFolders + "kinds/llama2_model/tokenizer.model", pieces / "tokenizer.model");
  EXPECT_EQ(around(pieces, "Llama", both), Sizes(1, 1));
  EXPECT_EQ(around(pieces, "Llama", none), Sizes(0, 0));
  fs::copy(kTokenizerFolders + "sentence/unigram.model", pieces / "tokenizer.model",
           fs::copy_options::overwrite_existing);
  for (const std::string& flags : {both, begin, none}) EXPECT_EQ(around(pieces, "T5", flags), Sizes(0, 1)) << flags;
}

// vocab.json leaves out an id, and an added token uses it.
TEST(LoadTokenizer, AnAddedTokenInAGapIsFoundByItsOwnText) {
  const ScratchFolder scratch;
  for (const char* name : {"vocab.json", "merges.txt"}) fs::copy(kTokenizerFolders + "gpt2/" + name, scratch / name);
  json vocabulary = json::parse(read_file(scratch / "vocab.json"));
  const std::int64_t gap = vocabulary.size();
  vocabulary["\u0120zz"] = gap + 1;
  scratch.write("vocab.json", vocabulary.dump());
  scratch.write("tokenizer_config.json", R"({"pad_token": "<mark>", "added_tokens_decoder": {")" + std::to_string(gap) +
                                             R"(": {"content": "<mark>"}}})");
  const auto tokenizer = load_tokenizer(scratch.path());
  EXPECT_EQ(tokenizer->special().padding, gap);
  // The id without a text must not match a zero byte.
  const std::string text("a\0<mark>\0b", 10);
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
  EXPECT_THAT(tokenizer->encode(text), ::testing::Contains(gap));
}

TEST(LoadTokenizer, ASentencePieceDirectoryFindsTheAddedTokens) {
  const ScratchFolder scratch;
  fs::copy(kTokenizerFolders + "kinds/llama2_model/tokenizer.model", scratch / "tokenizer.model");
  const std::int64_t size = load_tokenizer(scratch / "tokenizer.model")->size();
  scratch.write("added_tokens.json", "{\"<mark>\": " + std::to_string(size) + "}");
  scratch.write("tokenizer_config.json", R"({"legacy": false, "pad_token": "<mark>"})");
  const auto tokenizer = load_tokenizer(scratch.path());
  EXPECT_EQ(tokenizer->size(), size + 1);
  EXPECT_EQ(tokenizer->special().padding, size);
  EXPECT_EQ(tokenizer->encode("<mark></s>"), (TokenIds{size, 2}));
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("the<mark>dogs</s> x")), "the<mark>dogs</s> x");
  // If the file is loaded without its directory, it is a plain SentencePiece model, whose control symbols are
  // never found in text.
  EXPECT_GT(load_tokenizer(scratch / "tokenizer.model")->encode("</s>").size(), 1u);
}

// After any change or truncation, a file loads or is rejected.
TEST(LoadTokenizer, DamagedFilesAreReadOrRefused) {
  std::uint32_t state = 7;
  const auto random = [&](std::size_t below) { return (state = state * 1664525 + 1013904223) % 65536 * below / 65536; };
  for (const std::string name : {"llama3/tokenizer.json", "sentence/bpe.model", "kinds/t5/tokenizer.json",
                                 "kinds/llama2/tokenizer.json", "kinds/bert/tokenizer.json"}) {
    const std::string full = read_file(kTokenizerFolders + name);
    int refused = 0;
    for (int round = 0; round < 400; ++round) {
      const ScratchFolder scratch;
      std::string bytes = full.substr(0, round % 4 == 0 ? 1 + random(full.size() - 1) : full.size());
      for (int change = 0; change < 3; ++change) bytes[random(bytes.size())] = static_cast<char>(random(256));
      const std::string path = scratch.write(fs::path(name).filename(), bytes);
      try {
        const auto tokenizer = load_tokenizer(path);
        tokenizer->encode("The quick brown fox, 1984!");
      } catch (const InputError&) {
        ++refused;
      }
    }
    EXPECT_GT(refused, 60) << name;
  }
}

}  // namespace
}  // namespace gantry
