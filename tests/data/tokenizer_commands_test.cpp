// `gantry data encode` and `gantry data decode`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "program.h"

namespace gantry {
namespace {

using testing::gantry_program;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::run_program;
using testing::ScratchFolder;

const std::string kTokenizerKinds = std::string(GANTRY_SOURCE_DIR) + "/tests/golden/tokenizers/kinds/";

Outcome run_data(const std::string& arguments) { return run_program(gantry_program() + " data " + arguments); }

TEST(TokenCommands, LinesBecomeIdsAndLinesAgain) {
  const ScratchFolder scratch;
  const std::string tokenizer = " --tokenizer " + kTokenizerKinds + "t5 ";
  const std::string text = scratch.write("text.txt", "the dogs\n\nhello");
  const Outcome encoded = run_data("encode" + tokenizer + text);
  EXPECT_EQ(encoded.exit_code, 0) << encoded.err;
  const std::string plain = run_data("encode --no-specials" + tokenizer + text).out;
  EXPECT_THAT(encoded.out, HasSubstr(", 1]\n[1]\n["));  // </s> ends each text
  EXPECT_THAT(plain, HasSubstr("]\n[]\n["));
  const std::string ids = scratch.write("ids.jsonl", encoded.out);
  EXPECT_EQ(run_data("decode" + tokenizer + ids).out, "the dogs</s>\n</s>\nhello</s>\n");
  EXPECT_EQ(run_data("decode --skip-specials --json" + tokenizer + ids).out, "\"the dogs\"\n\"\"\n\"hello\"\n");
  const std::string strings = scratch.write("strings.jsonl", "\"the dogs\"\n\"\"\n\"hello\"\n");
  EXPECT_EQ(run_data("encode --json" + tokenizer + strings).out, encoded.out);
  EXPECT_EQ(run_data("encode" + tokenizer + "- < " + text).out, encoded.out);
}

TEST(TokenCommands, FaultyLinesAreNamed) {
  const ScratchFolder scratch;
  const auto fault = [&](const std::string& command, const std::string& line) {
    const Outcome run = run_data(command + " --tokenizer bytes " + scratch.write("lines", "[1]\n" + line + "\n"));
    EXPECT_EQ(run.exit_code, 4);
    return run.err;
  };
  EXPECT_THAT(fault("decode", "1, 2"), HasSubstr("lines:2: "));
  EXPECT_THAT(fault("decode", "{\"a\": 1}"), HasSubstr("lines:2: the line is not a list; expected a JSON list"));
  EXPECT_THAT(fault("decode", "[1, -2]"), HasSubstr("lines:2: entry 1 is not a token id"));
  EXPECT_THAT(fault("decode", "[300]"), HasSubstr("lines:2: token 300: the token is not a byte"));
  EXPECT_THAT(fault("encode --json", "\"a\""), HasSubstr("lines:1: the line is not a JSON string"));
  EXPECT_EQ(run_data("encode --tokenizer bytes " + (scratch / "none")).exit_code, 4);
}

}  // namespace
}  // namespace gantry
