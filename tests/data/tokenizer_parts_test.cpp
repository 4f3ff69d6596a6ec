// Every part of a tokenizer.json, compared with Hugging Face's tokenizers:
// tests/golden/tokenizers/parts.json, and the files of published models that GANTRY_REFERENCE_FILES names.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gantry/core/base/utf8.h"
#include "gantry/core/error.h"
#include "gantry/data/tokenizers/tokenizer_pipeline.h"

namespace gantry {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const json& tokenizer_parts() {
  static const json kParts =
      json::parse(std::ifstream(std::string(GANTRY_SOURCE_DIR) + "/tests/golden/tokenizers/parts.json"));
  return kParts;
}

TokenizerPipeline pipeline_of(const json& file) { return {file, "nowhere/tokenizer.json", false}; }

// The base vocabulary marks the last byte of a piece: "Ab</w>" is a piece of two bytes.
std::string joined_pieces(const TokenIds& ids) {
  static const auto kTokens = [] {
    std::vector<std::string> tokens(tokenizer_parts()["base"]["model"]["vocab"].size());
    for (const auto& [token, id] : tokenizer_parts()["base"]["model"]["vocab"].items()) tokens[id] = token;
    return tokens;
  }();
  std::string pieces;
  for (const std::int64_t id : ids) {
    std::string token = kTokens[static_cast<std::size_t>(id)];
    if (token.ends_with("</w>")) token.replace(token.size() - 4, 4, " ");
    pieces += token;
  }
  if (!pieces.empty()) pieces.pop_back();
  return pieces;
}

TEST(TokenizerParts, NormalizersAndPreTokenizersEqualHuggingFaces) {
  const json& texts = tokenizer_parts()["texts"];
  int compared = 0;
  for (const auto& entry : tokenizer_parts()["splits"]) {
    json file = tokenizer_parts()["base"];
    json steps = json::array();
    if (entry["part"] == "pre_tokenizer") steps.push_back(entry["settings"]);
    steps.push_back({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}});
    file["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", steps}};
    if (entry["part"] == "normalizer") file["normalizer"] = entry["settings"];
    const TokenizerPipeline tokenizer = pipeline_of(file);
    for (std::size_t i = 0; i < texts.size(); ++i) {
      if (entry["pieces"][i].is_null()) continue;
      EXPECT_EQ(joined_pieces(tokenizer.encode(texts[i].get<std::string>())), entry["pieces"][i].get<std::string>())
          << entry["settings"] << texts[i];
      ++compared;
    }
  }
  EXPECT_GT(compared, 1800);
}

TEST(TokenizerParts, ModelsPostProcessorsAndDecodersEqualHuggingFaces) {
  const json& texts = tokenizer_parts()["texts"];
  for (const auto& entry : tokenizer_parts()["files"]) {
    const TokenizerPipeline tokenizer = pipeline_of(entry["file"]);
    const auto first = texts[0].get<std::string>();
    EXPECT_EQ(json(tokenizer.encode_surrounded(first)), entry["surrounded"][0]) << entry["name"];
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const auto text = texts[i].get<std::string>();
      EXPECT_EQ(json(tokenizer.encode(text)), entry["ids"][i]) << entry["name"] << texts[i];
      const TokenIds ids = tokenizer.encode_surrounded(text);
      EXPECT_EQ(valid_utf8(tokenizer.decode(ids)), entry["decoded"][i].get<std::string>()) << entry["name"] << texts[i];
      EXPECT_EQ(valid_utf8(tokenizer.decode(ids, true)), entry["without_specials"][i].get<std::string>())
          << entry["name"] << texts[i];
    }
  }
}

TEST(TokenizerParts, UnknownTextWithoutATokenForItIsAnError) {
  const TokenizerPipeline words =
      pipeline_of({{"model", {{"type", "WordLevel"}, {"vocab", {{"a", 0}}}, {"unk_token", "<unk>"}}}});
  EXPECT_EQ(words.encode("a"), TokenIds{0});
  EXPECT_THROW(words.encode("b"), InputError);
}

TEST(PublishedTokenizers, EqualHuggingFaces) {
  const char* folder = std::getenv("GANTRY_REFERENCE_FILES");
  if (!folder) GTEST_SKIP() << "needs GANTRY_REFERENCE_FILES, a directory with tokenizers of published models";
  std::vector<std::string> texts;
  std::ifstream corpus(fs::path(folder) / "corpus.jsonl");
  for (std::string line; std::getline(corpus, line);) texts.push_back(json::parse(line)["text"]);
  int compared = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(folder) / "tokenizers_cut")) {
    const json expected = json::parse(std::ifstream(entry.path() / "expected.json"));
    const std::string path = entry.path() / "tokenizer.json";
    if (json::parse(std::ifstream(path))["model"].value("dropout", json()).is_number()) {
      EXPECT_THROW(load_tokenizer(path), InputError);  // its ids are random
      continue;
    }
    const auto tokenizer = load_tokenizer(entry.path());
    for (std::size_t i = 0; i < texts.size(); ++i)
      EXPECT_EQ(json(tokenizer->encode(texts[i])), expected[i]) << entry.path() << json(texts[i]);
    ++compared;
  }
  EXPECT_GE(compared, 40);
}

}  // namespace
}  // namespace gantry
