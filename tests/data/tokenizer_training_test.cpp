// Merges equal to those of Hugging Face's tokenizers: tests/golden/tokenizers/training.
#include <fstream>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gantry/core/error.h"
#include "gantry/data/tokenizers/pair_trainer.h"
#include "gantry/data/tokenizers/tokenizer.h"
#include "gantry/data/tokenizers/train_tokenizer.h"
#include "program.h"

namespace gantry::testing {
namespace {

using nlohmann::json;
using Merges = std::vector<std::pair<std::string, std::string>>;

const std::string kTrainingGolden = GANTRY_SOURCE_DIR "/tests/golden/tokenizers/training/";

json file_of(const std::string& path) { return json::parse(read_file(path)); }

TEST(PairTrainer, MergesTheMostFrequentPairAndOfEqualOnesTheFirst) {
  // ab 3, bc 3, cd 1: of ab and bc, a is before b.
  const TrainedPairs made = train_pairs({{"abc", 3}, {"cd", 1}}, {.vocabulary_size = 100});
  EXPECT_EQ(made.merges, (Merges{{"a", "b"}, {"ab", "c"}, {"c", "d"}}));
  EXPECT_EQ(made.tokens, (std::vector<std::string>{"a", "b", "c", "d", "ab", "abc", "cd"}));
}

TEST(PairTrainer, EndsAtTheVocabularyAndAtRarePairs) {
  const WordCounts words = {{"abc", 3}, {"cd", 1}};
  EXPECT_EQ(train_pairs(words, {.vocabulary_size = 5}).merges, (Merges{{"a", "b"}}));
  EXPECT_EQ(train_pairs(words, {.vocabulary_size = 100, .min_frequency = 2}).merges, (Merges{{"a", "b"}, {"ab", "c"}}));
  EXPECT_TRUE(train_pairs({}, {.vocabulary_size = 100}).tokens.empty());
}

TEST(PairTrainer, SpecialTokensAndTheAlphabetComeFirst) {
  const TrainedPairs made =
      train_pairs({{"ba", 1}}, {.vocabulary_size = 5, .specials = {"<s>", "</s>"}, .alphabet = {"c"}});
  EXPECT_EQ(made.tokens, (std::vector<std::string>{"<s>", "</s>", "a", "b", "c"}));
}

class TrainedTokenizer : public ::testing::Test {
 protected:
  TokenizerTraining training(TokenizerModel model, std::int64_t vocabulary_size) const {
    return {.files = {kTrainingGolden + "text.jsonl"},
            .documents = {},
            .folder = scratch / "tokenizer",
            .model = model,
            .vocabulary_size = vocabulary_size,
            .min_frequency = 2,
            .specials = {"<|endoftext|>", "<pad>"},
            .threads = 3};
  }
  std::vector<std::string> texts() const {
    std::ifstream file(kTrainingGolden + "text.jsonl");
    std::vector<std::string> found;
    for (std::string line; std::getline(file, line);) found.push_back(json::parse(line)["text"]);
    return found;
  }
  std::string fault(const TokenizerTraining& training) const try {
    train_tokenizer(training);
    return "";
  } catch (const Error& error) {
    return error.what();
  }

  ScratchFolder scratch;
};

TEST_F(TrainedTokenizer, HasTheMergesOfHuggingFaces) {
  const json expected = file_of(kTrainingGolden + "pairs.json");
  for (const auto& [frequency, model] : expected.items()) {
    TokenizerTraining chosen = training(TokenizerModel::kPairs, 400);
    chosen.folder = scratch / frequency;
    chosen.min_frequency = std::stoi(frequency);
    EXPECT_EQ(train_tokenizer(chosen).documents, 8);
    const json made = file_of(chosen.folder + "/tokenizer.json")["model"];
    EXPECT_EQ(made["merges"], model["merges"]) << frequency;
    ASSERT_EQ(made["vocab"].size(), model["tokens"].size()) << frequency;
    for (std::size_t id = 0; id < model["tokens"].size(); ++id)
      EXPECT_EQ(made["vocab"][model["tokens"][id].get<std::string>()], id) << model["tokens"][id];
  }
}

TEST_F(TrainedTokenizer, OfPairsKeepsEveryText) {
  train_tokenizer(training(TokenizerModel::kPairs, 400));
  const auto tokenizer = load_tokenizer(scratch / "tokenizer");
  EXPECT_EQ(tokenizer->special().end, 0);
  EXPECT_EQ(tokenizer->encode("<pad>"), TokenIds{1});
  for (const std::string& text : texts()) EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
}

TEST_F(TrainedTokenizer, OfUnigramKeepsEveryText) {
  const auto summary = train_tokenizer(training(TokenizerModel::kUnigram, 360));
  EXPECT_EQ(summary.tokens, 360);
  EXPECT_EQ(summary.documents, 8);
  const auto tokenizer = load_tokenizer(scratch / "tokenizer");
  EXPECT_EQ(tokenizer->size(), 360);
  EXPECT_EQ(tokenizer->special().end, 1);  // 0 is <unk>
  for (const std::string& text : texts()) EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
  EXPECT_LT(tokenizer->encode("banana bandana").size(), std::string("banana bandana").size());
}

TEST_F(TrainedTokenizer, RefusesWhatItCannotLearnFrom) {
  TokenizerTraining small = training(TokenizerModel::kPairs, 258);
  EXPECT_EQ(fault(small),
            "--vocab-size: 258 leaves no token for text; expected more than 258: the bytes and the special tokens");
  TokenizerTraining large = training(TokenizerModel::kUnigram, 1 << 20);
  EXPECT_NE(fault(large).find("Vocabulary size too high"), std::string::npos) << fault(large);
  for (const TokenizerModel model : {TokenizerModel::kPairs, TokenizerModel::kUnigram}) {
    TokenizerTraining empty = training(model, 400);
    empty.files = {scratch.write("empty.txt", "")};
    EXPECT_NE(fault(empty).find("empty.txt: the 1 files contain no text"), std::string::npos) << fault(empty);
  }
  EXPECT_EQ(fault(training(TokenizerModel::kPairs, 400)), "");
  EXPECT_NE(fault(training(TokenizerModel::kPairs, 400)).find("tokenizer.json: the file exists"), std::string::npos);
}

}  // namespace
}  // namespace gantry::testing
