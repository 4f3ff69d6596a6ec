// data.objective: masked tokens of text, and labels of texts, have the same losses in every layout.
#include <fmt/format.h>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sstream>

#include "program.h"

namespace gantry::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

const std::string kVocabularyFile = GANTRY_SOURCE_DIR "/tests/golden/word_piece/vocab.txt";
const std::string kLabelledLines = R"({"text": "hello dogs", "text_pair": "the cat", "label": "so"}
{"text": "the cat", "label": "no"}
{"text": "dogs and dogs", "label": "yes"}
{"text": "hello", "text_pair": "hello", "label": "no"}
)";
const std::vector<std::string> kObjectiveLayouts = {"", "--set parallel.data=2", "--set parallel.tensor=2",
                                                    "--set parallel.context=2",
                                                    "--set parallel.pipeline=2 --set schedule.microbatches=2"};

// A run of a small BERT or ModernBERT with this head.
std::string small_bert(const ScratchFolder& scratch, const std::string& head, const std::string& data,
                       const std::string& keys = "") {
  const bool is_modern = head.starts_with("ModernBert");
  const std::string own =
      is_modern ? "local_attention: 4, pad_token_id: 0" : "hidden_dropout_prob: 0, attention_probs_dropout_prob: 0";
  return scratch.write(
      "run.yaml",
      fmt::format("model: {{policy: {}, config: {{architectures: [{}], vocab_size: 642, hidden_size: 8, "
                  "num_hidden_layers: 2, num_attention_heads: 2, intermediate_size: 12, max_position_embeddings: 16, "
                  "{}{}}}}}\n"
                  "data: {{tokenizer: {}, {}, batch_size: 4}}\nprecision: float64\n"
                  "optimizer: {{lr: 0.02}}\ntrain: {{steps: 8}}\ncomm: {{threads_per_rank: 1}}\n",
                  is_modern ? "modernbert" : "bert", head, own, keys, kVocabularyFile, data));
}

struct Losses {
  std::vector<double> train, evaluation;
};

Losses losses_of(const ScratchFolder& scratch, const std::string& config, const std::string& sets) {
  const Outcome run =
      run_program(fmt::format("{} train {} --set output={} {}", gantry_program(), config, scratch / "run", sets), 60);
  EXPECT_EQ(run.exit_code, 0) << run.err;
  Losses losses;
  std::istringstream file(read_file(scratch / "run/metrics.jsonl"));
  for (std::string line; std::getline(file, line);) {
    const json entry = json::parse(line);
    if (entry.contains("loss")) losses.train.push_back(entry["loss"]);
    if (entry.contains("eval_loss")) losses.evaluation.push_back(entry["eval_loss"]);
  }
  return losses;
}

void expect_equal_layouts(const ScratchFolder& scratch, const std::string& config) {
  const Losses expected = losses_of(scratch, config, "");
  ASSERT_EQ(expected.train.size(), 8u);
  ASSERT_FALSE(expected.evaluation.empty());
  EXPECT_LT(expected.train.back(), expected.train.front());
  for (const std::string& layout : kObjectiveLayouts) {
    const Losses found = losses_of(scratch, config, layout);
    ASSERT_EQ(found.train.size(), expected.train.size()) << layout;
    for (std::size_t i = 0; i < found.train.size(); ++i) EXPECT_NEAR(found.train[i], expected.train[i], 1e-9) << layout;
    ASSERT_EQ(found.evaluation.size(), expected.evaluation.size()) << layout;
    for (std::size_t i = 0; i < found.evaluation.size(); ++i)
      EXPECT_NEAR(found.evaluation[i], expected.evaluation[i], 1e-9) << layout;
  }
}

TEST(Objective, MaskedTokensAreTheSameInEveryLayout) {
  const ScratchFolder scratch;
  std::string text;
  for (int i = 0; i < 40; ++i) text += "hello the dogs and the cat ";
  const std::string file = scratch.write("text.txt", text);
  for (const char* head : {"BertForMaskedLM", "ModernBertForMaskedLM"}) {
    const std::string config = small_bert(
        scratch, head,
        fmt::format("format: text, path: {}, objective: mlm, mlm_probability: 0.3, sequence_length: 12", file));
    std::ofstream(config, std::ios::app) << "evaluation: {path: " << file << ", every: 4}\n";
    expect_equal_layouts(scratch, config);
  }
}

TEST(Objective, LabelledTextsAreTheSameInEveryLayout) {
  const ScratchFolder scratch;
  const std::string file = scratch.write("lines.jsonl", kLabelledLines);
  const std::string config =
      small_bert(scratch, "BertForSequenceClassification",
                 fmt::format("format: jsonl, path: {}, sequence_length: 12", file), ", num_labels: 3");
  std::ofstream(config, std::ios::app) << "evaluation: {path: " << file
                                       << ", every: 4}\ncheckpoint: {path: " << scratch / "c"
                                       << "}\n";
  expect_equal_layouts(scratch, config);
  run_program(fmt::format("{} checkpoint export {} {}", gantry_program(), scratch / "c", scratch / "exported"), 60);
  const json exported = json::parse(read_file(scratch / "exported/config.json"));
  EXPECT_EQ(exported["id2label"], (json{{"0", "no"}, {"1", "so"}, {"2", "yes"}}));
}

TEST(Objective, ModernBertLearnsLabelsOfTexts) {
  const ScratchFolder scratch;
  const std::string file = scratch.write("lines.jsonl", kLabelledLines);
  const std::string config = small_bert(scratch, "ModernBertForSequenceClassification",
                                        fmt::format("format: jsonl, path: {}, sequence_length: 12", file),
                                        ", num_labels: 3, classifier_pooling: mean");
  std::ofstream(config, std::ios::app) << "evaluation: {path: " << file << ", every: 4}\n";
  expect_equal_layouts(scratch, config);
}

TEST(Objective, DecodersLearnLabelsOfTexts) {
  const ScratchFolder scratch;
  const std::string file = scratch.write("lines.jsonl", kLabelledLines);
  const std::string config = scratch.write(
      "run.yaml",
      fmt::format("model: {{policy: llama, config: {{architectures: [LlamaForSequenceClassification], num_labels: 3, "
                  "pad_token_id: 0, vocab_size: 642, hidden_size: 8, num_hidden_layers: 2, num_attention_heads: 2, "
                  "intermediate_size: 12, max_position_embeddings: 16}}}}\n"
                  "data: {{tokenizer: {}, format: jsonl, path: {}, sequence_length: 12, batch_size: 4}}\n"
                  "precision: float64\noptimizer: {{lr: 0.02}}\ntrain: {{steps: 8}}\n"
                  "comm: {{threads_per_rank: 1}}\nevaluation: {{path: {}, every: 4}}\ncheckpoint: {{path: {}}}\n",
                  kVocabularyFile, file, file, scratch / "c"));
  expect_equal_layouts(scratch, config);
  run_program(fmt::format("{} checkpoint export {} {}", gantry_program(), scratch / "c", scratch / "exported"), 60);
  const json exported = json::parse(read_file(scratch / "exported/config.json"));
  EXPECT_EQ(exported["architectures"], json({"LlamaForSequenceClassification"}));
  EXPECT_EQ(exported["id2label"], (json{{"0", "no"}, {"1", "so"}, {"2", "yes"}}));
}

TEST(Objective, ThatDoesNotFitIsRefused) {
  const ScratchFolder scratch;
  const std::string text = scratch.write("text.txt", "hello the dogs and the cat hello the dogs and the cat"),
                    lines = scratch.write("lines.jsonl", R"({"text": "hello", "label": 1})");
  const auto refusal = [&](const std::string& head, const std::string& data, const std::string& sets = "") {
    const Outcome run = run_program(gantry_program() + " train " + small_bert(scratch, head, data) + sets, 60);
    EXPECT_EQ(run.exit_code, 3) << run.err;
    return run.err;
  };
  const std::string of_text = "format: text, sequence_length: 4, path: " + text,
                    of_lines = "format: jsonl, sequence_length: 4, path: " + lines;
  EXPECT_THAT(refusal("BertForMaskedLM", of_text), HasSubstr("set data.objective: mlm"));
  EXPECT_THAT(refusal("BertForMaskedLM", of_text + ", objective: causal"),
              HasSubstr("data.objective: causal does not fit text data"));
  EXPECT_THAT(refusal("BertForMaskedLM", of_lines + ", objective: mlm"), HasSubstr("mlm does not read jsonl"));
  EXPECT_THAT(refusal("BertForMaskedLM", of_text + ", objective: mlm, document_mask: true"),
              HasSubstr("data.document_mask: the key has no effect with data.objective mlm"));
  EXPECT_THAT(refusal("BertForSequenceClassification", of_text + ", objective: mlm"),
              HasSubstr("mlm does not fit text data and a model that is trained on classes; expected labels"));
  EXPECT_THAT(refusal("BertForSequenceClassification", of_lines + ", loss_on: all"),
              HasSubstr("data.loss_on: the key has no effect on labelled texts and groups of texts"));
  EXPECT_THAT(refusal("BertForTokenClassification", of_lines),
              HasSubstr("jsonl does not fit BertForTokenClassification"));
  EXPECT_THAT(refusal("BertForMaskedLM", of_text + ", objective: mlm",
                      " --set parallel.pipeline=2 --set parallel.vocabulary=pipeline"),
              HasSubstr("parallel.vocabulary: the value is pipeline, which this bert model does not support; expected "
                        "a decoder that predicts tokens"));
}

}  // namespace
}  // namespace gantry::testing
