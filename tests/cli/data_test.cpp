// Training data of `gantry train`: every format, weighted sources, a data position that is independent of batch size
// and layout, held-out samples.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fstream>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sstream>

#include "program.h"

namespace gantry::testing {
namespace {

using nlohmann::json;

const std::string kGoldens = std::string(GANTRY_SOURCE_DIR) + "/tests/golden";
constexpr double kTolerance = 1e-10;

// Text whose samples all differ.
std::string text_of(std::size_t bytes, std::uint32_t state) {
  std::string text;
  while (text.size() < bytes) {
    state = state * 1664525u + 1013904223u;
    text += static_cast<char>('a' + (state >> 24) % 23);
  }
  return text;
}

std::string config_of(const std::string& data, const std::string& more = "optimizer: {lr: 1.0e-2}\n") {
  return fmt::format(
      "model: {{policy: gpt2, config: {{n_embd: 16, n_layer: 3, n_head: 2, vocab_size: 256, n_positions: 16, "
      "resid_pdrop: 0.0, embd_pdrop: 0.0, attn_pdrop: 0.0}}}}\nprecision: float64\ncomm: {{threads_per_rank: 1}}\n"
      "train: {{steps: 6}}\n"
      "data: {{{}}}\n{}",
      data, more);
}

std::vector<json> metrics_of(const std::string& output) {
  std::vector<json> lines;
  std::istringstream file(read_file(output + "/metrics.jsonl"));
  for (std::string line; std::getline(file, line);) lines.push_back(json::parse(line));
  return lines;
}

// Runs `gantry train` and gives what metrics.jsonl says; nothing where the run failed.
class Training {
 public:
  explicit Training(const std::string& config) { scratch_.write("train.yaml", config); }

  std::vector<json> lines(const std::string& name, const std::string& sets = "") {
    last = run_program(gantry_program() + " train " + (scratch_ / "train.yaml") + " --set output=" + (scratch_ / name) +
                       " " + sets);
    EXPECT_EQ(last.exit_code, 0) << sets << "\n" << last.err;
    return metrics_of(scratch_ / name);
  }
  std::string operator/(const std::string& name) const { return scratch_ / name; }

  Outcome last;

 private:
  ScratchFolder scratch_;
};

// The numbers under a key, of the lines that have it.
std::vector<double> numbers(const std::vector<json>& lines, const char* key) {
  std::vector<double> found;
  for (const auto& line : lines)
    if (line.contains(key)) found.push_back(line[key]);
  return found;
}

void expect_near(const std::vector<double>& expected, const std::vector<double>& actual, const std::string& label) {
  ASSERT_EQ(actual.size(), expected.size()) << label;
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(actual[i], expected[i], kTolerance * std::abs(expected[i])) << label << " " << i;
}

const char* const kLayouts[] = {"--set parallel.tensor=2 --set parallel.pipeline=2", "--set parallel.data=2",
                                "--set parallel.pipeline=3 --set parallel.data=2 --set data.prefetch=0",
                                "--set parallel.data=2 --set parallel.zero=2"};

TEST(TrainingData, MegatronFilesOfATextGiveItsNumbers) {
  const ScratchFolder scratch;
  const std::string text = scratch.write("text.txt", text_of(900, 1));
  ASSERT_EQ(run_program(gantry_program() + " data build --tokenizer byte --output " + (scratch / "corpus") + " " + text)
                .exit_code,
            0);
  Training from_text(config_of("format: text, path: \"" + text + "\", sequence_length: 8, batch_size: 6"));
  Training from_files(
      config_of("format: megatron, path: \"" + (scratch / "corpus") + "\", sequence_length: 8, batch_size: 6"));
  const auto expected = numbers(from_text.lines("text"), "loss");
  ASSERT_EQ(expected.size(), 6u);
  EXPECT_EQ(numbers(from_files.lines("megatron"), "loss"), expected);
}

// 1 MiB and more are kept in data.cache. The second run reads the tokens there, whatever the file is called.
TEST(TrainingData, CompressedAndCachedLinesGiveTheSameNumbers) {
  Training training(
      "model: {policy: llama, config: {hidden_size: 16, intermediate_size: 16, num_hidden_layers: 1, "
      "num_attention_heads: 2, vocab_size: 256, max_position_embeddings: 32}}\nprecision: float64\n"
      "comm: {threads_per_rank: 1}\ntrain: {steps: 3}\n"
      "data: {format: jsonl, path: unset, tokenizer: bytes, sequence_length: 32, batch_size: 4}\n");
  const std::string cache = " --set data.cache=" + (training / "cache");
  {
    std::ofstream lines(training / "lines.jsonl");
    for (std::uint32_t i = 0; i < 24000; ++i)
      lines << json{{"prompt", text_of(8, i)}, {"completion", text_of(16, i + 7)}}.dump() << "\n";
  }
  ASSERT_EQ(run_program("gzip -k " + (training / "lines.jsonl")).exit_code, 0);
  const auto expected = training.lines("plain", "--set data.cache=never --set data.path=" + (training / "lines.jsonl"));
  EXPECT_NE(training.last.out.find("first sample: 24 tokens, 16 of them with a loss"), std::string::npos)
      << training.last.out;
  for (const char* name : {"first", "second"}) {
    const auto lines =
        training.lines(name, "--set parallel.data=2 --set data.path=" + (training / "lines.jsonl") + cache);
    for (std::size_t i = 0; i < expected.size(); ++i)
      EXPECT_NEAR(lines.at(i)["loss"].get<double>(), expected[i]["loss"].get<double>(), kTolerance);
  }
  const auto packed = training.lines("packed", "--set data.path=" + (training / "lines.jsonl.gz") + cache);
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(packed.at(i)["loss"].get<double>(), expected[i]["loss"].get<double>(), kTolerance);
}

TEST(TrainingData, WeightedSourcesGiveOneRanksNumbersInEveryLayout) {
  const ScratchFolder scratch;
  std::string sources;
  for (int i = 0; i < 3; ++i) {  // the last is exhausted within the six steps and starts over
    const std::string text =
        scratch.write(fmt::format("{}.txt", i), text_of(i == 2 ? 40 : 700, static_cast<std::uint32_t>(i)));
    const std::string output = scratch / fmt::format("corpus{}", i);
    ASSERT_EQ(run_program(gantry_program() + " data build --tokenizer byte --output " + output + " " + text).exit_code,
              0);
    sources += fmt::format("{{path: \"{}\", weight: {}}}, ", output, i + 1);
  }
  Training training(
      config_of("format: megatron, sources: [" + sources + "], sequence_length: 8, batch_size: 6, prefetch: 3"));
  const auto expected = numbers(training.lines("one"), "loss");
  ASSERT_EQ(expected.size(), 6u);
  for (const char* layout : kLayouts) expect_near(expected, numbers(training.lines("many", layout), "loss"), layout);
}

TEST(TrainingData, FaultsAreOneLineWithTheirPlaceAndExitCode) {
  const ScratchFolder scratch;
  const std::string good = scratch.write("good.txt", text_of(200, 1)), short_text = scratch.write("short.txt", "abc");
  ASSERT_EQ(run_program(gantry_program() + " data build --tokenizer byte --output " + (scratch / "corpus") + " " + good)
                .exit_code,
            0);
  const auto source = [&](const std::string& format, const std::string& path) {
    return fmt::format("format: {}, sources: [{{path: \"{}\"}}, {{path: \"{}\"}}], sequence_length: 8, batch_size: 4",
                       format, format == "text" ? good : scratch / "corpus", path);
  };
  const std::string squad = kGoldens + "/squad/squad.json";
  struct Fault {
    std::string data, sets;
    int exit_code;
    std::string said;
  };
  const Fault faults[] = {
      {source("text", scratch / "none"), "", 4, "data.sources[1].path: '"},
      {source("text", short_text), "", 4, "short.txt: there are 3 tokens; expected at least sequence_length 8 + 1 = 9"},
      {source("megatron", scratch / "none"), "", 4, "none.idx"},
      {source("megatron", scratch / "corpus"), "--set model.config.vocab_size=110", 4,
       "is outside the model's vocabulary of 110"},
      {source("megatron", scratch / "corpus"), "--set model.config.vocab_size=110 --set parallel.pipeline=3", 4,
       "is outside the model's vocabulary of 110"},
      {source("megatron", scratch / "corpus"), "--set evaluation.path=" + (scratch / "gone"), 4, "gone.idx"},
      {"format: squad, path: \"" + squad + "\", sequence_length: 16", "", 3,
       "squad does not fit a model that is trained on tokens"},
  };
  for (const auto& [data, sets, exit_code, said] : faults) {
    const std::string config = scratch.write("bad.yaml", config_of(data));
    const Outcome run = run_program(gantry_program() + " train " + config + " " + sets, 60);
    EXPECT_EQ(run.exit_code, exit_code) << data << sets << run.err;
    EXPECT_NE(run.err.find(said), std::string::npos) << run.err << "\n not " << said;
    EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
  }
}

// At a learning rate that changes nothing, the loss of a batch is the mean of its samples' losses: two batches of 4
// must together be the batch of 8 that comes next.
TEST(TrainingData, ResumesAtTheNextSampleWithOtherBatchesAndReplicas) {
  const ScratchFolder scratch;
  const std::string text = scratch.write("text.txt", text_of(600, 9));
  Training training(config_of("format: text, path: \"" + text + "\", sequence_length: 8, batch_size: 8",
                              "optimizer: {name: sgd, momentum: 0, weight_decay: 0, lr: 1.0e-300}\n"
                              "checkpoint: {path: \"" +
                                  (scratch / "c") + "\"}\n"));
  const auto expected =
      numbers(training.lines("whole", "--set train.steps=11 --set checkpoint.path=" + (scratch / "w")),
              "loss");  // 88 samples, more than the 74 that there are
  ASSERT_EQ(expected.size(), 11u);
  training.lines("parts", "--set train.steps=3");  // 24 samples
  const std::string resume = "--set checkpoint.resume=auto ";
  const auto halves = numbers(
      training.lines("parts", resume + "--set train.steps=7 --set data.batch_size=4 --set parallel.data=2"), "loss");
  ASSERT_EQ(halves.size(), 7u);  // 40 samples
  EXPECT_EQ(std::vector<double>(halves.begin(), halves.begin() + 3),
            std::vector<double>(expected.begin(), expected.begin() + 3));
  for (int step = 3; step < 5; ++step)
    EXPECT_NEAR((halves[2 * step - 3] + halves[2 * step - 2]) / 2, expected[step], kTolerance) << step;
  // 40 is not a multiple of 12: samples 40 to 63 are the steps 6 to 8 of 8.
  const auto dozens = numbers(
      training.lines("parts", resume + "--set train.steps=9 --set data.batch_size=12 --set parallel.pipeline=3"),
      "loss");
  ASSERT_EQ(dozens.size(), 9u);
  EXPECT_NEAR((dozens[7] + dozens[8]) / 2, (expected[5] + expected[6] + expected[7]) / 3, kTolerance);
  EXPECT_GT(std::abs(expected[5] - expected[6]), 1e-6);  // samples are distinct
  // 64 is not a multiple of 24.
  const auto last = numbers(training.lines("parts", resume + "--set train.steps=10 --set data.batch_size=24"), "loss");
  EXPECT_NEAR(last.back(), (expected[8] + expected[9] + expected[10]) / 3, kTolerance);
}

TEST(TrainingData, HeldOutLossIsOneRanksInEveryLayoutAndChangesNothing) {
  const ScratchFolder scratch;
  const std::string text = scratch.write("text.txt", text_of(600, 3));
  // 9 samples: with batches of 4 the last has one, for two replicas.
  const std::string held_out = scratch.write("held_out.txt", text_of(9 * 8 + 1, 4));
  Training training(config_of("format: text, path: \"" + text + "\", sequence_length: 8, batch_size: 4"));
  const auto alone = training.lines("alone");
  const std::string evaluation = "--set evaluation.path=" + held_out + " --set evaluation.every=2 ";
  const auto one = training.lines("one", evaluation);
  EXPECT_EQ(numbers(one, "loss"), numbers(alone, "loss"));
  EXPECT_EQ(numbers(one, "grad_norm"), numbers(alone, "grad_norm"));
  const auto losses = numbers(one, "eval_loss");
  ASSERT_EQ(losses.size(), 3u);
  EXPECT_EQ(numbers(one, "eval_tokens"), std::vector<double>(3, 72));
  for (std::size_t i = 0; i < losses.size(); ++i) EXPECT_DOUBLE_EQ(numbers(one, "perplexity")[i], std::exp(losses[i]));
  EXPECT_NE(losses[0], losses[1]);
  EXPECT_NE(training.last.out.find("perplexity"), std::string::npos);
  for (const char* layout : kLayouts) {
    const auto many = training.lines("many", evaluation + layout);
    expect_near(losses, numbers(many, "eval_loss"), layout);
    expect_near(numbers(one, "loss"), numbers(many, "loss"), layout);
    EXPECT_EQ(numbers(many, "eval_tokens"), std::vector<double>(3, 72)) << layout;
  }
  // Two batches, at the end only; the last line of a file is the evaluation of the last step.
  const auto few = training.lines("few", "--set evaluation.path=" + held_out + " --set evaluation.batches=2");
  EXPECT_EQ(numbers(few, "eval_tokens"), std::vector<double>{64});
  EXPECT_EQ(few.back()["step"], 6);
}

#ifdef GANTRY_MPIRUN
TEST(TrainingData, AStageBetweenNeedsNoFile) {
  const ScratchFolder scratch;
  const std::string text = scratch.write("text.txt", text_of(400, 5));
  Training training(config_of("format: text, path: \"" + text + "\", sequence_length: 8, batch_size: 4",
                              "parallel: {pipeline: 3}\nevaluation: {path: \"" + text + "\"}\n"));
  const auto expected = training.lines("threads");
  const std::string train =
                        gantry_program() + " train " + (training / "train.yaml") + " --set output=" + (scratch / "m"),
                    nowhere = scratch / "nowhere";
  const std::string middle = train + " --set data.path=" + nowhere + " --set evaluation.path=" + nowhere;
  const Outcome run =
      run_program(std::string(GANTRY_MPIRUN) + " -n 1 " + train + " : -n 1 " + middle + " : -n 1 " + train, 60);
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const auto lines = metrics_of(scratch / "m");
  EXPECT_EQ(numbers(lines, "loss"), numbers(expected, "loss"));
  EXPECT_EQ(numbers(lines, "eval_loss"), numbers(expected, "eval_loss"));
  EXPECT_EQ(numbers(lines, "loss").size(), 6u);
  const Outcome last =
      run_program(std::string(GANTRY_MPIRUN) + " -n 1 " + train + " : -n 1 " + train + " : -n 1 " + middle, 60);
  EXPECT_EQ(last.exit_code, 4) << last.err;  // the last stage does
}
#endif

TEST(TrainingData, SquadTrainsAQuestionAnsweringModelInEveryLayout) {
  const std::string squad = kGoldens + "/squad/squad.json";
  Training training(fmt::format(
      "model: {{policy: bert, config: {{architectures: [BertForQuestionAnswering], vocab_size: 650, hidden_size: 24, "
      "intermediate_size: 40, num_hidden_layers: 3, num_attention_heads: 2, max_position_embeddings: 64, "
      "hidden_dropout_prob: 0.0, attention_probs_dropout_prob: 0.0}}}}\nprecision: float64\ncomm: {{threads_per_rank: "
      "1}}\n"
      "optimizer: {{lr: 3.0e-3}}\ntrain: {{steps: 30}}\nevaluation: {{path: \"{0}\"}}\n"
      "data: {{format: squad, path: \"{0}\", tokenizer: \"{1}\", sequence_length: 48, batch_size: 6}}\n",
      squad, kGoldens + "/word_piece/vocab.txt"));
  const auto one = training.lines("one");
  const auto losses = numbers(one, "loss");
  ASSERT_EQ(losses.size(), 30u);
  EXPECT_LT(losses.back(), 0.7 * losses.front());
  EXPECT_LT(numbers(one, "eval_loss").back(), 0.7 * losses.front());
  for (const char* layout : kLayouts) {
    const auto many = training.lines("many", std::string(layout) + " --set train.steps=4");
    expect_near({losses.begin(), losses.begin() + 4}, numbers(many, "loss"), layout);
  }
}

TEST(TrainingData, SquadNeedsATokenizerAndASpanHead) {
  const std::string squad = kGoldens + "/squad/squad.json";
  const ScratchFolder scratch;
  const auto fault = [&](const std::string& head, const std::string& data) {
    const std::string config =
        scratch.write("bad.yaml", fmt::format("model: {{policy: bert, config: {{architectures: [{}], hidden_size: 8, "
                                              "intermediate_size: 8, num_hidden_layers: 1, num_attention_heads: 1}}}}\n"
                                              "train: {{steps: 1}}\ndata: {{{}, sequence_length: 48}}\n",
                                              head, data));
    const Outcome run = run_program(gantry_program() + " train " + config, 60);
    EXPECT_EQ(run.exit_code, 3) << run.err;
    return run.err;
  };
  EXPECT_NE(fault("BertForQuestionAnswering", "format: squad, path: \"" + squad + "\"").find("data.tokenizer"),
            std::string::npos);
  EXPECT_NE(fault("BertForQuestionAnswering", "format: text, path: \"" + squad + "\"")
                .find("text does not fit a model that is trained on spans; expected squad"),
            std::string::npos);
}

// The label of a token would be the next one, which the model sees.
TEST(TrainingData, AModelThatReadsBothDirectionsRefusesNextTokens) {
  const ScratchFolder scratch;
  const std::string text = scratch.write("text.txt", std::string(4000, 'a'));
  for (const char* family : {"bert", "roberta", "modernbert"})
    for (const char* format : {"text", "tokens", "megatron"}) {
      const std::string config = scratch.write(
          "bad.yaml", fmt::format("model: {{policy: {}, config: {{hidden_size: 8, intermediate_size: 8, "
                                  "num_hidden_layers: 1, num_attention_heads: 1, vocab_size: 257}}}}\n"
                                  "train: {{steps: 1}}\ndata: {{format: {}, path: \"{}\", sequence_length: 48}}\n",
                                  family, format, text));
      const Outcome run = run_program(gantry_program() + " train " + config, 60);
      EXPECT_EQ(run.exit_code, 3) << run.err;
      EXPECT_NE(
          run.err.find(fmt::format("error: data.objective: {} data have labels for the next token, which {} would see "
                                   "because it reads both directions",
                                   format, family)),
          std::string::npos)
          << run.err;
      EXPECT_NE(run.err.find("set data.objective: mlm"), std::string::npos) << run.err;
    }
}

}  // namespace
}  // namespace gantry::testing
