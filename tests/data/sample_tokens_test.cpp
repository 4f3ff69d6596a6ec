// The tokens that users are shown have the ids and labels that the model is given.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gantry/data/corpus/packed_dataset.h"
#include "gantry/data/drawn_dataset.h"
#include "gantry/data/encoded_text.h"
#include "gantry/data/json_lines.h"
#include "gantry/data/masked_text.h"
#include "program.h"

namespace gantry::testing {
namespace {

using ::testing::ElementsAre;

const std::string kShownTokenizer = GANTRY_SOURCE_DIR "/tests/golden/tokenizers/kinds/llama2";
constexpr std::int64_t kShownLength = 24;

std::vector<std::int64_t> row_of(const Dataset& data, std::int64_t index) {
  std::int64_t width = 0;
  for (const SampleEntry& entry : data.entries()) width = std::max(width, entry.first + entry.length);
  std::vector<std::int64_t> row(static_cast<std::size_t>(width));
  data.read_numbers(index, NumberRow(NumberType::kInt64, reinterpret_cast<std::byte*>(row.data())));
  return row;
}

// The entry of a row.
std::vector<std::int64_t> part_of(const Dataset& data, std::int64_t index, const std::string& name) {
  const auto row = row_of(data, index);
  for (const SampleEntry& entry : data.entries())
    if (entry.name == name) return {row.begin() + entry.first, row.begin() + entry.first + entry.length};
  return {};
}

// The label at the place of a token is the next token. `joined`: documents are one row of tokens.
void expect_shown_labels(const Dataset& data, std::int64_t index, bool joined) {
  const auto tokens = data.tokens_of(index);
  const auto ids = part_of(data, index, "input_ids"), labels = part_of(data, index, "labels");
  std::size_t place = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const bool ends = i + 1 == tokens.size() || (!joined && tokens[i + 1].document != tokens[i].document);
    if (ends && (!joined || i + 1 == tokens.size())) continue;  // only a label
    EXPECT_EQ(ids[place], tokens[i].id) << i;
    EXPECT_EQ(labels[place], tokens[i + 1].is_trained ? tokens[i + 1].id : kNotCounted) << i;
    ++place;
  }
  for (; place < labels.size(); ++place) EXPECT_EQ(labels[place], kNotCounted);
}

std::vector<std::string> reasons_of(const Dataset& data, std::int64_t index) {
  std::vector<std::string> reasons;
  for (const SampleToken& token : data.tokens_of(index))
    if (reasons.empty() || reasons.back() != token.why) reasons.push_back(token.why);
  return reasons;
}

LineRules shown_rules(const std::string& loss_on = "completions") {
  return {.tokenizer = kShownTokenizer,
          .sequence_length = kShownLength,
          .vocabulary = 1 << 20,
          .ends = {},
          .loss_on = loss_on};
}

TEST(SampleTokens, OfPackedLines) {
  const ScratchFolder scratch;
  const auto files = {std::filesystem::path(scratch.write("a.jsonl", R"({"text": "a b"}
{"prompt": "a", "completion": "b c"}
)"))};
  for (const char* loss_on : {"completions", "all"}) {
    const auto data = open_json_lines(files, shown_rules(loss_on), "place");
    ASSERT_EQ(data->size(), 1);
    expect_shown_labels(*data, 0, /*joined=*/false);
  }
  const auto data = open_json_lines(files, shown_rules(), "place");
  EXPECT_THAT(reasons_of(*data, 0), ElementsAre("first token of the document", "text", "special token", "prompt",
                                                "completion", "special token"));
  const auto tokens = data->tokens_of(0);
  EXPECT_EQ(tokens.back().document, 1);
  EXPECT_TRUE(tokens.back().is_trained);  // the end token
}

TEST(SampleTokens, OfChats) {
  const ScratchFolder scratch;
  const auto files = {std::filesystem::path(scratch.write("a.jsonl", R"({"messages": [{"role": "user", "content": "a"},
 {"role": "assistant", "content": "b", "weight": 0}, {"role": "user", "content": "c"},
 {"role": "assistant", "content": "d"}]})"))};
  std::string line = read_file(scratch / "a.jsonl");
  std::erase(line, '\n');
  scratch.write("a.jsonl", line);
  LineRules rules = shown_rules();
  rules.sequence_length = 256;
  rules.chat_template = "chatml";
  const auto data = open_json_lines(files, rules, "place");
  expect_shown_labels(*data, 0, /*joined=*/false);
  const auto reasons = reasons_of(*data, 0);
  EXPECT_THAT(reasons, ::testing::Contains("answer without a loss"));
  EXPECT_THAT(reasons, ::testing::Contains("answer"));
  EXPECT_THAT(reasons, ::testing::Contains("prompt or template"));
}

TEST(SampleTokens, OfPairs) {
  const ScratchFolder scratch;
  LineRules rules = shown_rules();
  rules.target_length = kShownLength;
  const auto data =
      open_json_lines({scratch.write("a.jsonl", R"({"prompt": "a b", "completion": "c"})")}, rules, "place");
  const auto tokens = data->tokens_of(0);
  const auto ids = part_of(*data, 0, "input_ids"), labels = part_of(*data, 0, "labels");
  std::size_t prompt = 0, completion = 0;
  for (const SampleToken& token : tokens) {
    EXPECT_EQ(token.position, static_cast<std::int64_t>(token.is_trained ? completion : prompt));
    EXPECT_EQ(token.id, token.is_trained ? labels[completion++] : ids[prompt++]);
  }
  EXPECT_GT(completion, 0u);
  EXPECT_EQ(labels[completion], kNotCounted);
}

TEST(SampleTokens, OfJoinedTexts) {
  const ScratchFolder scratch;
  const auto open = [&] {
    return open_encoded_text({scratch.write("a.txt", "a b"), scratch.write("b.txt", "c d e f")}, {kShownTokenizer}, 6,
                             1 << 20, "place");
  };
  const auto data = open();
  expect_shown_labels(*data, 0, /*joined=*/true);
  EXPECT_THAT(reasons_of(*data, 0), ElementsAre("first token of the sample", "text"));
  const auto masked = mask_documents(open());
  expect_shown_labels(*masked, 0, /*joined=*/true);
  EXPECT_THAT(reasons_of(*masked, 0),
              ElementsAre("first token of the document", "text", "first token of the document", "text"));
  EXPECT_EQ(masked->tokens_of(0).back().document, 1);
}

TEST(SampleTokens, OfMaskedTexts) {
  const ScratchFolder scratch;
  const std::string file = scratch.write("a.txt", "a b c d e f g h i j k l m n o p q r s t u v w x y z");
  Masking masking{.probability = 0.5, .mask_token = 3, .tokens = 100, .special = {}, .seed = 1};
  const auto rows =
      mask_tokens({.entries = {},
                   .sequence_length = 12,
                   .open =
                       [&](const OpenProgress&) {
                         std::vector<WeightedDataset> all;
                         all.push_back({open_encoded_text({file}, {kShownTokenizer}, 12, 1 << 20, "place")});
                         return all;
                       }},
                  masking)
          .open(no_progress);
  const Dataset& data = *rows.front().dataset;
  const auto tokens = data.tokens_of(1);
  const auto ids = part_of(data, 1, "input_ids"), labels = part_of(data, 1, "labels");
  ASSERT_EQ(tokens.size(), 12u);
  int trained = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    EXPECT_EQ(labels[i], tokens[i].is_trained ? tokens[i].id : kNotCounted);
    EXPECT_EQ(tokens[i].why == "masked", tokens[i].is_trained && ids[i] == 3);
    trained += tokens[i].is_trained ? 1 : 0;
  }
  EXPECT_GT(trained, 0);
}

}  // namespace
}  // namespace gantry::testing
