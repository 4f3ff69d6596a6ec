// Lines with texts whose embeddings are compared.
#include "gantry/data/text_group_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gantry/core/error.h"
#include "program.h"
#include "thrown_by.h"

namespace gantry::testing {
namespace {

using ::testing::HasSubstr;
using Numbers = std::vector<std::int64_t>;

TextGroupRules group_rules(std::int64_t texts, std::int64_t length = 6) {
  return {.text = {.tokenizer = GANTRY_SOURCE_DIR "/tests/golden/word_piece/vocab.txt",
                   .sequence_length = length,
                   .vocabulary = 642,
                   .padding = 9},
          .texts = texts};
}

Numbers group_of(const std::string& line, const TextGroupRules& rules) {
  const ScratchFolder scratch;
  const auto data = open_text_group_lines({scratch.write("lines.jsonl", line)}, rules, "data.path");
  Numbers row(static_cast<std::size_t>(2 * rules.texts * rules.text.sequence_length), -7);
  data->read(0, row.data());
  return row;
}

std::string refused_group(const std::string& line, const TextGroupRules& rules) {
  const std::string said = thrown_by<InputError>([&] { group_of(line, rules); });
  return said.substr(said.find("lines.jsonl"));
}

TEST(TextGroupLines, HaveARowOfEachText) {
  EXPECT_EQ(group_of(R"({"anchor": "hello dogs", "positive": "the cat"})", group_rules(2)),
            (Numbers{2, 48, 25, 29, 3, 9, 2, 5, 202, 199, 235, 3,  //
                     1, 1,  1,  1,  1, 0, 1, 1, 1,   1,   1,   1}));
  const Numbers three = group_of(R"({"anchor": "the", "positive": "dogs", "negative": "hello"})", group_rules(3, 4));
  EXPECT_EQ(three, (Numbers{2, 5, 3, 9, 2, 25, 29, 3, 2, 48, 3, 9,  //
                            1, 1, 1, 0, 1, 1,  1,  1, 1, 1,  1, 0}));
  EXPECT_EQ(group_of(R"({"anchor": "the", "positive": "dogs", "negative": ["hello"]})", group_rules(3, 4)), three);
  const auto entries = text_group_entries(group_rules(3, 4));
  EXPECT_EQ(entries[1].name, "attention_mask");
  EXPECT_EQ(entries[1].first, 12);
  EXPECT_EQ(entries[1].shape, (std::vector<std::int64_t>{3, 4}));
}

TEST(TextGroupLines, AreCountedInTheFirstLine) {
  const ScratchFolder scratch;
  const auto texts_in = [&](const std::string& text) {
    return texts_of_first_line({scratch.write("lines.jsonl", text)});
  };
  EXPECT_EQ(texts_in("\n{\"anchor\": \"a\", \"positive\": \"b\", \"negative\": [\"c\", \"d\"]}\n"), 4);
  EXPECT_EQ(texts_in(R"({"anchor": "a", "positive": "b"})"), 2);
  EXPECT_EQ(texts_in("{"), 2);
}

TEST(TextGroupLines, SayWhatIsWrongWithALine) {
  const TextGroupRules rules = group_rules(2);
  EXPECT_THAT(refused_group("[]", rules),
              HasSubstr("lines.jsonl:1: the line has no 'anchor'; expected an object with"));
  EXPECT_THAT(refused_group(R"({"anchor": "the"})", rules), HasSubstr("the line has no 'positive'"));
  EXPECT_THAT(refused_group(R"({"anchor": "the", "positive": 3})", rules),
              HasSubstr("'positive' is 3; expected a string"));
  EXPECT_THAT(refused_group(R"({"anchor": "", "positive": "the"})", rules), HasSubstr("'anchor' is an empty text"));
  EXPECT_THAT(refused_group(R"({"anchor": "the", "positive": "the", "negative": "cat"})", rules),
              HasSubstr("the line has 3 texts; expected 2 as in the first line"));
  EXPECT_THAT(refused_group(R"({"anchor": "the", "positive": "hello the dogs and the cat"})", rules),
              HasSubstr("more than data.sequence_length 6"));
}

TEST(TextGroupLines, BadLinesAreSkippedOrCut) {
  const std::string lines = "{}\n{\"anchor\": \"the\", \"positive\": \"hello the dogs and the cat\"}\n";
  TextGroupRules rules = group_rules(2);
  rules.text.bad_lines = "cut";
  const Numbers cut = group_of(lines, rules);
  EXPECT_EQ(Numbers(cut.begin(), cut.begin() + 12), (Numbers{2, 5, 3, 9, 9, 9, 2, 48, 5, 25, 29, 3}));
  rules.text.bad_lines = "skip";
  EXPECT_THAT(thrown_by<InputError>([&] { group_of(lines, rules); }), HasSubstr("data.path"));
}

}  // namespace
}  // namespace gantry::testing
