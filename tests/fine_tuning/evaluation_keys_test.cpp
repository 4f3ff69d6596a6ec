// Keys with effects during a run: noise on embeddings, multiple-choice questions and prompts at evaluations,
// an early end, the best checkpoint, a start from weights alone, a run's length in epochs.
#include <filesystem>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sstream>

#include "gantry/trainer/choice_scorer.h"
#include "program.h"

namespace gantry::testing {
namespace {

using nlohmann::json;

// 65 bytes: eight samples of eight tokens.
constexpr const char* kText = "the cat sat on the mat, and the dog lay by the door of the house.";

// A run of a small Llama on bytes, with held-out text.
std::string train_yaml(const ScratchFolder& scratch, const std::string& length = "steps: 3") {
  const std::string text = scratch.write("text.txt", kText);
  return scratch.write("train.yaml", fmt::format(R"(
model:
  policy: llama
  config: {{hidden_size: 16, num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2,
            intermediate_size: 24, vocab_size: 256, max_position_embeddings: 64}}
precision: float64
data: {{format: text, path: {0}, tokenizer: bytes, sequence_length: 8, batch_size: 4, shuffle: false}}
evaluation: {{path: {0}, every: 1}}
optimizer: {{lr: 0.02}}
train: {{{2}}}
comm: {{threads_per_rank: 1}}
output: {1}
)",
                                                 text, scratch / "out", length));
}

Outcome gantry(const std::string& arguments) {
  return run_program("OMP_NUM_THREADS=1 " + gantry_program() + " " + arguments);
}

// Runs the training and returns the lines of metrics.jsonl.
std::vector<json> metrics_of(const ScratchFolder& scratch, const std::string& yaml, const std::string& sets) {
  std::filesystem::remove_all(scratch / "out");
  const Outcome run = gantry("train " + yaml + sets);
  EXPECT_EQ(run.exit_code, 0) << sets << run.err;
  std::vector<json> lines;
  std::istringstream text(read_file(scratch / "out/metrics.jsonl"));
  for (std::string line; std::getline(text, line);) lines.push_back(json::parse(line));
  return lines;
}

// Compares the values that do not depend on the layout: losses, norms, answers.
void expect_same(const std::vector<json>& expected, const std::vector<json>& found, const std::string& sets) {
  ASSERT_EQ(found.size(), expected.size()) << sets;
  for (std::size_t i = 0; i < found.size(); ++i) {
    for (const char* key : {"loss", "eval_loss", "grad_norm", "accuracy", "normalised_accuracy"}) {
      ASSERT_EQ(found[i].contains(key), expected[i].contains(key)) << sets << " " << key;
      if (found[i].contains(key))
        EXPECT_NEAR(found[i][key].get<double>(), expected[i][key].get<double>(), 1e-9) << sets << " " << key << i;
    }
    EXPECT_EQ(found[i].value("samples", json()), expected[i].value("samples", json())) << sets;
  }
}

std::string with(const std::string& key, const std::string& value) { return " --set " + key + "=" + value; }

TEST(EmbeddingNoise, IsThatOfOneRankInEveryLayout) {
  const ScratchFolder scratch;
  const std::string yaml = train_yaml(scratch), noise = with("train.neftune_alpha", "20");
  const auto plain = metrics_of(scratch, yaml, ""), expected = metrics_of(scratch, yaml, noise);
  ASSERT_EQ(plain.size(), expected.size());
  EXPECT_GT(std::abs(plain[0]["loss"].get<double>() - expected[0]["loss"].get<double>()), 1e-4);
  for (const std::string& layout :
       {with("parallel.tensor", "2") + with("parallel.sequence_parallel", "true"), with("parallel.context", "2"),
        with("parallel.data", "2") + with("parallel.zero", "3"),
        with("parallel.pipeline", "2") + with("schedule.microbatches", "2"),
        with("parallel.pipeline", "2") + with("schedule.microbatches", "2") + with("parallel.vocabulary", "pipeline")})
    expect_same(expected, metrics_of(scratch, yaml, noise + layout), layout);
}

TEST(Choices, AreScoredByLikelihoodAndByItOverCharacters) {
  const std::vector<ChoiceQuestion> questions = {{.first = 0, .lengths = {2, 10}, .answer = 1},
                                                 {.first = 2, .lengths = {3, 3, 3, 3}, .answer = 0}};
  const std::vector<double> likelihoods = {-4, -5, -1, -2, -1, -9};
  const ChoiceScores scores = choice_scores(questions, likelihoods);
  EXPECT_EQ(scores.questions, 2);
  EXPECT_DOUBLE_EQ(scores.accuracy, 0.5);           // choice 0 (-4) is wrong; of a tie the first one counts
  EXPECT_DOUBLE_EQ(scores.normalised_accuracy, 1);  // per character, -0.5 is more than -2
}

TEST(Choices, AndPromptsAreAnsweredIdenticallyInEveryLayout) {
  const ScratchFolder scratch;
  const std::string yaml = train_yaml(scratch);
  const std::string questions = scratch.write("questions.jsonl",
                                              R"({"context": "the", "choices": ["cat", "zq"], "answer": 0}
{"context": "the dog", "choices": ["lay", "xx", "qqqq"], "answer": 0}
{"context": "on", "choices": ["the", "#"], "answer": 1}
)");
  const std::string sets = with("evaluation.choices", questions) + with("evaluation.prompts", "\"['the ', 'a']\"") +
                           with("evaluation.prompt_tokens", "5");
  const auto expected = metrics_of(scratch, yaml, sets);
  bool answered = false;
  for (const json& line : expected)
    if (line.contains("eval_loss")) {
      answered = true;
      EXPECT_EQ(line.at("choices"), 3);
      EXPECT_EQ(line.at("samples").size(), 2u);
      EXPECT_EQ(line["samples"][0]["prompt"], "the ");
    }
  EXPECT_TRUE(answered);
  for (const std::string& layout :
       {with("parallel.tensor", "2"), with("parallel.data", "2"), with("parallel.context", "2"),
        with("parallel.pipeline", "2") + with("parallel.data", "2")})
    expect_same(expected, metrics_of(scratch, yaml, sets + layout), layout);
}

// The loss of each evaluation is that of the exported average, in every layout, and the training is the same.
TEST(Averages, AreEvaluated) {
  const ScratchFolder scratch;
  const std::string yaml = train_yaml(scratch), kept = with("train.ema", "0.5"),
                    averaged = kept + with("evaluation.ema", "true"),
                    saved = with("checkpoint.path", scratch / "saved");
  const auto plain = metrics_of(scratch, yaml, kept + saved), expected = metrics_of(scratch, yaml, averaged);
  ASSERT_EQ(plain.size(), 6u);  // three steps, each with an evaluation
  ASSERT_EQ(expected.size(), 6u);
  for (std::size_t i = 0; i < plain.size(); ++i) {
    const bool is_step = plain[i].contains("loss");
    const char* key = is_step ? "loss" : "eval_loss";
    if (is_step)
      EXPECT_EQ(expected[i][key], plain[i][key]) << i;
    else
      EXPECT_GT(std::abs(expected[i][key].get<double>() - plain[i][key].get<double>()), 1e-5) << i;
  }
  ASSERT_EQ(gantry("checkpoint export " + (scratch / "saved") + " " + (scratch / "average") + " --ema").exit_code, 0);
  const auto exported = metrics_of(
      scratch, yaml, with("model", "\"{path: " + (scratch / "average") + "}\"") + with("evaluation.only", "true"));
  ASSERT_EQ(exported.size(), 1u);
  EXPECT_NEAR(exported[0]["eval_loss"].get<double>(), expected[5]["eval_loss"].get<double>(), 1e-9);
  for (const std::string& layout :
       {with("parallel.tensor", "2"), with("parallel.data", "2") + with("parallel.zero", "3"),
        with("parallel.pipeline", "2") + with("schedule.microbatches", "2")})
    expect_same(expected, metrics_of(scratch, yaml, averaged + layout), layout);
}

TEST(Prompts, MayBeChats) {
  const ScratchFolder scratch;
  const std::string yaml = train_yaml(scratch);
  const std::string chat = "[{role: user, content: the dog}]";
  const auto samples = [&](const std::string& prompts, const std::string& more) {
    const auto lines =
        metrics_of(scratch, yaml,
                   with("evaluation.prompts", "\"" + prompts + "\"") + with("evaluation.prompt_tokens", "5") + more);
    for (const json& line : lines)
      if (line.contains("samples")) return line["samples"];
    return json();
  };
  const std::string chatml = with("data.chat_template", "chatml");
  const json found = samples("['the ', " + chat + "]", chatml);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0]["prompt"], "the ");
  EXPECT_EQ(json::parse(found[1]["prompt"].get<std::string>()),
            (json{{"messages", {{{"role", "user"}, {"content", "the dog"}}}}}));
  EXPECT_EQ(samples("['the ', {messages: " + chat + "}]", chatml), found);
  EXPECT_EQ(samples("['the ', " + chat + "]", chatml + with("parallel.tensor", "2")), found);
}

// With a learning rate near 0 no evaluation is better than the first.
TEST(Patience, EndsARunAndTheBestCheckpointStays) {
  const ScratchFolder scratch;
  const std::string yaml = train_yaml(scratch);
  const std::string sets = with("optimizer.lr", "1.0e-300") + with("train.steps", "9") +
                           with("checkpoint.path", scratch / "steps") + with("checkpoint.every", "1") +
                           with("checkpoint.keep", "1") + with("checkpoint.keep_best", "true") +
                           with("checkpoint.resume", "auto");
  const auto lines = metrics_of(scratch, yaml, sets + with("train.patience", "2"));
  EXPECT_EQ(lines.back().at("step"), 3);  // evaluated after 1, and twice without a lower loss
  EXPECT_TRUE(std::filesystem::exists(scratch / "steps/step-000001"));
  EXPECT_FALSE(std::filesystem::exists(scratch / "steps/step-000002"));
  EXPECT_TRUE(std::filesystem::exists(scratch / "steps/step-000003"));
  const auto rest = metrics_of(scratch, yaml, sets + with("train.patience", "4"));
  EXPECT_EQ(rest.back().at("step"), 5);  // resuming keeps the best evaluation so far
  EXPECT_TRUE(std::filesystem::exists(scratch / "steps/step-000001"));
  EXPECT_FALSE(std::filesystem::exists(scratch / "steps/step-000003"));
}

TEST(CheckpointLoad, BeginsWithTheWeightsAlone) {
  const ScratchFolder scratch;
  const std::string yaml = train_yaml(scratch), save = with("checkpoint.path", scratch / "first");
  const auto first = metrics_of(scratch, yaml, save + with("parallel.tensor", "2"));
  const double reached = first.back().at("eval_loss");
  const auto again = metrics_of(scratch, yaml,
                                with("checkpoint.load", scratch / "first") + with("train.steps", "1") +
                                    with("optimizer.lr", "1.0e-300") + with("parallel.pipeline", "2"));
  EXPECT_EQ(again.front().at("step"), 1);  // a new run, not a resumed one
  EXPECT_NEAR(again.back().at("eval_loss").get<double>(), reached, 1e-9);
}

TEST(Epochs, AreStepsByTheSamplesOfTheData) {
  const ScratchFolder scratch;
  const auto lines = metrics_of(scratch, train_yaml(scratch, "epochs: 1.5"), "");
  EXPECT_EQ(lines.back().at("step"), 3);  // 8 samples, 4 per step
}

}  // namespace
}  // namespace gantry::testing
