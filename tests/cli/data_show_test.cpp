// `gantry data show`: samples of configurations and lines of files.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "program.h"

namespace gantry::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

const std::string kLlamaFiles = GANTRY_SOURCE_DIR "/tests/golden/tokenizers/kinds/llama2";

Outcome show(const std::string& arguments) { return run_program(gantry_program() + " data show " + arguments, 60); }

TEST(DataShow, PrintsTheTokensOfALine) {
  const ScratchFolder scratch;
  const std::string file = scratch.write("a.jsonl", "{\"text\": \"a\"}\n{\"prompt\": \"a\", \"completion\": \"b\"}\n");
  const Outcome run = show(file + ":2 --json --tokenizer " + kLlamaFiles);
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const json shown = json::parse(run.out);
  EXPECT_EQ(shown["sample"], file + ":2");
  std::vector<std::string> reasons;
  for (const json& token : shown["tokens"]) {
    EXPECT_TRUE(token["id"].is_number_integer() && token["text"].is_string());
    EXPECT_EQ(token["document"], 0);
    EXPECT_EQ(token["position"], reasons.size());
    EXPECT_EQ(token["trained"], token["why"] == "completion" || reasons.size() + 1 == shown["tokens"].size());
    reasons.push_back(token["why"]);
  }
  EXPECT_THAT(reasons, ::testing::Contains("prompt"));
  EXPECT_EQ(reasons.back(), "special token");
  EXPECT_THAT(show(file + " --tokenizer " + kLlamaFiles).out, HasSubstr(file + ":1: 2 tokens, 1 of them trained"));
}

TEST(DataShow, PrintsASampleOfAConfiguration) {
  const ScratchFolder scratch;
  const std::string text = scratch.write("a.txt", "abcdefgh"),
                    config = scratch.write("run.yaml",
                                           "model: {policy: gpt2, config: {vocab_size: 256}}\n"
                                           "data: {format: text, tokenizer: bytes, path: " +
                                               text + ", sequence_length: 3}\n");
  const Outcome run = show(config + ":2 --json");
  ASSERT_EQ(run.exit_code, 0) << run.err;
  std::string shown;
  const json sample = json::parse(run.out);
  for (const json& token : sample["tokens"]) shown += token["text"].get<std::string>();
  EXPECT_EQ(shown, "defg");
  const Outcome other = show(config + ":3");
  EXPECT_EQ(other.exit_code, 4);
  EXPECT_THAT(other.err, HasSubstr("there is no sample 3; expected 1 to 2"));
}

TEST(DataShow, RefusesWhatItCannotShow) {
  const ScratchFolder scratch;
  const std::string file = scratch.write("a.jsonl", "{\"text\": \"a\"}\n{\"messages\": []}\n");
  const std::string with_tokenizer = " --tokenizer " + kLlamaFiles;
  const auto expect_error = [](const Outcome& run, int code, const std::string& said) {
    EXPECT_EQ(run.exit_code, code) << run.err;
    EXPECT_THAT(run.err, HasSubstr(said));
  };
  expect_error(show(file), 2, "a data file has no tokenizer; expected --model DIR or --tokenizer PATH");
  expect_error(show(file + ":7" + with_tokenizer), 4, file + ":7: the file has fewer lines");
  expect_error(show(file + ":2" + with_tokenizer), 4, file + ":2: ");
  expect_error(show(file + ":x" + with_tokenizer), 2, "expected FILE, or FILE:NUMBER");
  expect_error(show((scratch / "b.jsonl") + with_tokenizer), 4, "b.jsonl: No such file or directory");
}

}  // namespace
}  // namespace gantry::testing
