// Lines with a text and its label. Expected tokens: Hugging Face's BertTokenizerFast and tokenizers 0.23.
#include "gantry/data/labelled_lines.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gantry/core/error.h"
#include "gantry/data/tokenizers/tokenizer.h"
#include "program.h"

namespace gantry::testing {
namespace {

const std::string kBert = GANTRY_SOURCE_DIR "/tests/golden/word_piece/vocab.txt";

using Numbers = std::vector<std::int64_t>;

LabelledRules classes_of(std::int64_t length, std::vector<std::string> names = {}) {
  return {.text = {.tokenizer = kBert, .sequence_length = length, .vocabulary = 642, .padding = 9},
          .labels = 3,
          .classes = std::move(names)};
}

struct Sample {
  Numbers ids, types, mask;
  std::int64_t label = 0;
  std::vector<float> numbers;
};

// The samples of lines.
std::vector<Sample> samples_of(const std::string& text, const LabelledRules& rules) {
  const ScratchFolder scratch;
  const auto data = open_labelled_lines({scratch.write("lines.jsonl", text)}, rules, "data.path");
  std::vector<Sample> samples;
  for (std::int64_t i = 0; i < data->size(); ++i) {
    const auto length = static_cast<std::size_t>(rules.text.sequence_length);
    Numbers row(3 * length + 1, -7);
    data->read_numbers(i, NumberRow(NumberType::kInt64, reinterpret_cast<std::byte*>(row.data())));
    const auto part = [&](std::size_t k) { return Numbers(row.begin() + k * length, row.begin() + (k + 1) * length); };
    samples.push_back({part(0), part(1), part(2), row.back(), {}});
    if (rules.kind == LabelKind::kClass) continue;
    samples.back().numbers.resize(static_cast<std::size_t>(rules.labels));
    data->read_numbers(i, NumberRow(NumberType::kFloat32, reinterpret_cast<std::byte*>(samples.back().numbers.data())));
  }
  return samples;
}

std::string labelled_refusal(const std::string& text, const LabelledRules& rules) {
  try {
    samples_of(text, rules);
  } catch (const InputError& error) {
    const std::string said = error.what();
    return said.substr(said.find("lines.jsonl"));
  }
  return "";
}

TEST(LabelledLines, HaveTheTokensAndTypesOfHuggingFace) {
  const auto samples = samples_of(R"({"text": "hello dogs", "label": 2}
{"text": "hello dogs", "text_pair": "the cat", "label": 0}
)",
                                  classes_of(12));
  ASSERT_EQ(samples.size(), 2u);
  EXPECT_EQ(samples[0].ids, (Numbers{2, 48, 25, 29, 3, 9, 9, 9, 9, 9, 9, 9}));
  EXPECT_EQ(samples[0].types, Numbers(12, 0));
  EXPECT_EQ(samples[0].mask, (Numbers{1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(samples[0].label, 2);
  EXPECT_EQ(samples[1].ids, (Numbers{2, 48, 25, 29, 3, 5, 202, 199, 235, 3, 9, 9}));
  EXPECT_EQ(samples[1].types, (Numbers{0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 0, 0}));
  EXPECT_EQ(samples[1].mask, (Numbers{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0}));
}

TEST(LabelledLines, NameTheirLabels) {
  const ScratchFolder scratch;
  const auto label_of = [&](const std::string& line, const LabelledRules& rules) {
    return open_labelled_lines({scratch.write("lines.jsonl", line)}, rules, "data.path")->label_of(0);
  };
  EXPECT_EQ(label_of(R"({"text": "hello", "label": 2})", classes_of(8)), "2");
  EXPECT_EQ(label_of(R"({"text": "hello", "label": "b"})", classes_of(8, {"a", "b", "c"})), "1 (b)");
  LabelledRules numbers = classes_of(8);
  numbers.kind = LabelKind::kNumbers;
  EXPECT_EQ(label_of(R"({"text": "hello", "label": [0.5, -1, 2]})", numbers), "0.5, -1, 2");
}

TEST(LabelledLines, AreTruncatedLikeThoseOfHuggingFace) {
  const std::string longer = R"({"text": "hello the dogs and the cat", "text_pair": "the cat", "label": 1})",
                    second = R"({"text": "the cat", "text_pair": "hello the dogs and the cat", "label": 1})",
                    equal = R"({"text": "hello the dogs", "text_pair": "the cat dogs", "label": 1})",
                    single = R"({"text": "hello the dogs and the cat", "label": 1})";
  const auto ids = [](const std::string& line, std::int64_t length) {
    LabelledRules rules = classes_of(length);
    rules.text.bad_lines = "cut";
    return samples_of(line, rules).front().ids;
  };
  EXPECT_EQ(ids(longer, 6), (Numbers{2, 48, 5, 3, 5, 3}));
  EXPECT_EQ(ids(second, 6), (Numbers{2, 5, 3, 48, 5, 3}));
  EXPECT_EQ(ids(equal, 6), (Numbers{2, 48, 3, 5, 202, 3}));
  EXPECT_EQ(ids(longer, 7), (Numbers{2, 48, 5, 3, 5, 202, 3}));
  EXPECT_EQ(ids(longer, 9), (Numbers{2, 48, 5, 25, 3, 5, 202, 199, 3}));
  EXPECT_EQ(ids(second, 9), (Numbers{2, 5, 202, 199, 3, 48, 5, 25, 3}));
  EXPECT_EQ(ids(single, 4), (Numbers{2, 48, 5, 3}));
}

TEST(LabelledLines, HaveClassesByNameOrNumber) {
  const auto samples = samples_of(R"({"text": "a", "label": "so"}
{"text": "a", "label": 0}
)",
                                  classes_of(8, {"no", "so", "yes"}));
  EXPECT_EQ(samples[0].label, 1);
  EXPECT_EQ(samples[1].label, 0);
}

TEST(LabelledLines, HaveSeveralClassesOrNumbers) {
  LabelledRules rules = classes_of(8, {"no", "so", "yes"});
  rules.kind = LabelKind::kSeveral;
  const auto several = samples_of(R"({"text": "a", "label": ["yes", "no"]}
{"text": "a", "label": [0, 1, 0]}
{"text": "a", "label": []}
)",
                                  rules);
  EXPECT_EQ(several[0].numbers, (std::vector<float>{1, 0, 1}));
  EXPECT_EQ(several[1].numbers, (std::vector<float>{0, 1, 0}));
  EXPECT_EQ(several[2].numbers, (std::vector<float>{0, 0, 0}));
  rules.labels = 1;
  const auto binary = samples_of(R"({"text": "a", "text_pair": "hello", "label": 1}
{"text": "a", "text_pair": "hello", "label": [0]}
)",
                                 rules);
  EXPECT_EQ(binary[0].numbers, (std::vector<float>{1}));
  EXPECT_EQ(binary[1].numbers, (std::vector<float>{0}));
  EXPECT_EQ(labelled_refusal(R"({"text": "a", "label": 0.5})", rules),
            "lines.jsonl:1: the label is [0.5]; expected a list of 0 or 1 for each class");
  rules.kind = LabelKind::kNumbers;
  rules.labels = 1;
  const auto numbers = samples_of(R"({"text": "a", "label": 2.5}
{"text": "a", "label": [-1]}
)",
                                  rules);
  EXPECT_EQ(numbers[0].numbers, (std::vector<float>{2.5}));
  EXPECT_EQ(numbers[1].numbers, (std::vector<float>{-1}));
}

TEST(LabelledLines, ThatAreFaultyAreNamedOrSkipped) {
  const std::vector<std::tuple<std::string, std::string>> cases = {
      {R"({"text": "a"})", "lines.jsonl:1: the line has no 'label'"},
      {R"({"label": 1})", "lines.jsonl:1: the line has no 'text'"},
      {R"({"text": 3, "label": 1})", "lines.jsonl:1: 'text' is not a string"},
      {R"({"text": "a", "text_pair": null, "label": 1})", "lines.jsonl:1: 'text_pair' is not a string"},
      {R"({"text": "a", "label": 3})", "lines.jsonl:1: the label is 3; expected the name of a class, or 0 to 2"},
      {R"({"text": "a", "label": "maybe"})",
       "lines.jsonl:1: the label 'maybe' is not a class of the model; expected no, so"},
      {R"({"text": "hello the dogs and the cat", "label": 1})",
       "lines.jsonl:1: the text has 12 tokens, more than data.sequence_length 6"}};
  for (const auto& [line, said] : cases) {
    LabelledRules rules = classes_of(6, {"no", "so", "yes"});
    EXPECT_EQ(labelled_refusal(line, rules).substr(0, said.size()), said);
    rules.text.bad_lines = "skip";
    const auto samples = samples_of(line + "\n" + R"({"text": "a", "label": 2})", rules);
    ASSERT_EQ(samples.size(), 1u);
    EXPECT_EQ(samples.front().label, 2);
    EXPECT_THROW(samples_of(line, rules), InputError);
  }
}

TEST(LabelledLines, NameTheirClasses) {
  const ScratchFolder scratch;
  const auto file = [&](const std::string& text) {
    return std::vector<std::filesystem::path>{scratch.write("a.jsonl", text)};
  };
  EXPECT_EQ(label_names(file(R"({"label": "so"}
{"label": ["yes", "no"]}
{"label": "so"})")),
            (std::vector<std::string>{"no", "so", "yes"}));
  EXPECT_TRUE(label_names(file(R"({"label": 1})")).empty());
  EXPECT_FALSE(has_label_lists(file(R"({"label": "so"})")));
  EXPECT_TRUE(
      has_label_lists(file("\n"
                           R"({"label": [1, 0]})")));
}

TEST(PairsOfTexts, AreJoinedByThePostProcessor) {
  const std::string folder = GANTRY_SOURCE_DIR "/tests/golden/tokenizers/kinds/qwen2";
  const auto joined = [&](const std::string& processor) {
    const ScratchFolder scratch;
    auto file = nlohmann::json::parse(read_file(folder + "/tokenizer.json"));
    file["post_processor"] = nlohmann::json::parse(processor);
    const auto tokenizer = load_tokenizer(scratch.write("tokenizer.json", file.dump()));
    return tokenizer->join(tokenizer->encode("ab"), tokenizer->encode("cd"));
  };
  const TypedTokens roberta = joined(R"({"type": "RobertaProcessing", "sep": ["!", 0], "cls": ["\"", 1],
                                         "trim_offsets": true, "add_prefix_space": true})");
  EXPECT_EQ(roberta.ids, (TokenIds{1, 64, 65, 0, 0, 66, 67, 0}));
  EXPECT_EQ(roberta.types, TokenIds(8, 0));
  const TypedTokens by_template = joined(R"({"type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "!", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    "pair": [{"SpecialToken": {"id": "!", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
             {"SpecialToken": {"id": "\"", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}},
             {"SpecialToken": {"id": "\"", "type_id": 1}}],
    "special_tokens": {"!": {"id": "!", "ids": [0], "tokens": ["!"]},
                       "\"": {"id": "\"", "ids": [1], "tokens": ["\""]}}})");
  EXPECT_EQ(by_template.ids, (TokenIds{0, 64, 65, 1, 66, 67, 1}));
  EXPECT_EQ(by_template.types, (TokenIds{0, 0, 0, 0, 1, 1, 1}));
}

}  // namespace
}  // namespace gantry::testing
