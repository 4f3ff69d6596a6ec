// Runs of distillation with train.objective.top_k: layouts, the stored log-probabilities of earlier runs, and refusals.
#include <cmath>
#include <filesystem>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sstream>

#include "program.h"

namespace gantry::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

// Tokens of 16 bits.
std::string some_tokens(int count, int period = 17) {
  std::string tokens;
  for (const char letter : some_letters(count, period)) tokens += {letter, '\0'};
  return tokens;
}

// A student and a teacher with 211 tokens, 13 training samples of tokens and 5 held-out ones.
struct StoredTeacherRun {
  const ScratchFolder scratch;
  std::string config;

  explicit StoredTeacherRun(const std::string& precision = "float64") {
    std::filesystem::copy(GANTRY_SOURCE_DIR "/tests/golden/llama", scratch / "teacher");
    config = scratch.write(
        "train.yaml",
        fmt::format("model: {{policy: gpt2, config: {{n_embd: 16, n_layer: 4, n_head: 2, vocab_size: 211, n_positions: "
                    "32, resid_pdrop: 0, embd_pdrop: 0, attn_pdrop: 0}}}}\nprecision: {}\n"
                    "data: {{format: tokens, path: {}, sequence_length: 16, batch_size: 4}}\n"
                    "evaluation: {{path: {}, every: 5}}\noptimizer: {{lr: 0.01}}\n"
                    "train: {{steps: 5, objective: {{name: distill, teacher: {}, temperature: 2, alpha: 0.2}}}}\n",
                    precision, scratch.write("data.bin", some_tokens(13 * 16 + 1)),
                    scratch.write("held_out.bin", some_tokens(5 * 16 + 1, 13)), scratch / "teacher"));
  }

  Outcome train(const std::string& output, const std::string& sets = "") const {
    return run_program(fmt::format("{} train {} --set output={} {}", gantry_program(), config, scratch / output, sets));
  }
  Outcome train_stored(const std::string& output, int k, const std::string& sets = "",
                       const std::string& cache = "cache") const {
    return train(output, fmt::format("--set train.objective.top_k={} --set train.objective.teacher_cache={} {}", k,
                                     scratch / cache, sets));
  }

  std::vector<Json> metrics(const std::string& output) const {
    std::vector<Json> all;
    std::istringstream lines(read_file(scratch / (output + "/metrics.jsonl")));
    for (std::string line; std::getline(lines, line);) all.push_back(Json::parse(line));
    return all;
  }

  std::vector<std::string> stored(const std::string& cache = "cache") const {
    std::vector<std::string> paths;
    for (const auto& each : std::filesystem::directory_iterator(scratch / cache)) paths.push_back(each.path().string());
    std::ranges::sort(paths);
    return paths;
  }

  void expect_same(const std::string& one, const std::string& other) const {
    const auto expected = metrics(one), actual = metrics(other);
    ASSERT_EQ(expected.size(), 6u);
    ASSERT_EQ(actual.size(), expected.size()) << other;
    for (std::size_t i = 0; i < expected.size(); ++i)
      for (const char* key : {"loss", "grad_norm", "eval_loss"})
        if (expected[i].contains(key)) {
          EXPECT_NEAR(actual[i].at(key).get<double>(), expected[i].at(key).get<double>(), 1e-10) << other << i << key;
        }
  }
};

const char* const kComputed = "teacher: computing the 9 largest log-probabilities of each token of 13 samples";
const char* const kRead = "teacher: read the 9 largest log-probabilities of each token of 13 samples";

TEST(StoredTeacher, OfTheFullVocabularyIsTheTeacher) {
  const StoredTeacherRun run;
  ASSERT_EQ(run.train("full").exit_code, 0);
  const Outcome stored = run.train_stored("stored", 211);
  ASSERT_EQ(stored.exit_code, 0) << stored.err;
  run.expect_same("full", "stored");
}

// Each layout computes the numbers itself, and then reads those of one rank.
TEST(StoredTeacher, IsEqualInEveryLayout) {
  const StoredTeacherRun run;
  const Outcome alone = run.train_stored("alone", 9);
  ASSERT_EQ(alone.exit_code, 0) << alone.err;
  EXPECT_THAT(alone.out, HasSubstr(kComputed));
  const auto metrics = run.metrics("alone");
  EXPECT_LT(metrics[4].at("loss").get<double>(), metrics[0].at("loss").get<double>());
  for (const std::string layout :
       {"parallel.tensor=2 --set schedule.microbatches=2",
        "parallel.pipeline=2 --set schedule.microbatches=3 --set train.objective.teacher_parallel.tensor=2",
        "parallel.context=2", "parallel.data=3 --set parallel.zero=3",
        "parallel.data=2 --set parallel.tensor=2 --set parallel.sequence_parallel=true --set parallel.zero=1"}) {
    const Outcome computes = run.train_stored("computes", 9, "--set " + layout, "own");
    ASSERT_EQ(computes.exit_code, 0) << layout << computes.err;
    EXPECT_THAT(computes.out, HasSubstr(kComputed));
    run.expect_same("alone", "computes");
    const Outcome reads = run.train_stored("reads", 9, "--set " + layout);
    ASSERT_EQ(reads.exit_code, 0) << layout << reads.err;
    EXPECT_THAT(reads.out, HasSubstr(kRead));
    EXPECT_THAT(reads.out, Not(HasSubstr(kComputed)));
    run.expect_same("alone", "reads");
    std::filesystem::remove_all(run.scratch / "own");
  }
}

TEST(StoredTeacher, IsReadByRunsWithOtherOptions) {
  const StoredTeacherRun run;
  ASSERT_EQ(run.train_stored("first", 9).exit_code, 0);
  const auto files = run.stored();
  EXPECT_EQ(files.size(), 2u);
  const Outcome again = run.train_stored("again", 9,
                                         "--set train.objective.temperature=1 --set train.objective.alpha=0.5 "
                                         "--set data.batch_size=3 --set optimizer.lr=0.02 --set train.seed=7");
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.out, HasSubstr(std::string(kRead) + " from " + (run.scratch / "cache")));
  EXPECT_THAT(again.out, HasSubstr("of 5 samples from"));
  EXPECT_THAT(again.out, HasSubstr(", without the teacher"));
  EXPECT_EQ(run.stored(), files);
  // A resumed run continues with them.
  const std::string saves = "--set checkpoint.every=2 --set checkpoint.path=" + (run.scratch / "checkpoints");
  ASSERT_EQ(run.train_stored("parts", 9, saves + " --set train.steps=2").exit_code, 0);
  const Outcome rest = run.train_stored("parts", 9, saves + " --set checkpoint.resume=auto");
  ASSERT_EQ(rest.exit_code, 0) << rest.err;
  EXPECT_NEAR(run.metrics("parts").back().at("eval_loss").get<double>(),
              run.metrics("first").back().at("eval_loss").get<double>(), 1e-10);
  EXPECT_EQ(run.stored(), files);
}

TEST(StoredTeacher, IsComputedAgainForOtherDataTeachersAndPrecisions) {
  const StoredTeacherRun run;
  ASSERT_EQ(run.train_stored("run", 9, "--set train.steps=1").exit_code, 0);
  std::size_t files = run.stored().size();
  const auto expect_new = [&](int k, const std::string& sets, std::size_t computed) {
    const Outcome outcome = run.train_stored("run", k, "--set train.steps=1 " + sets);
    ASSERT_EQ(outcome.exit_code, 0) << sets << outcome.err;
    EXPECT_EQ(run.stored().size(), files + computed) << sets << outcome.out;
    files += computed;
  };
  expect_new(9, "", 0);
  expect_new(8, "", 2);
  expect_new(9, "--set precision=float32", 2);
  expect_new(9, "--set data.sequence_length=8", 2);
  expect_new(9, "--set data.path=" + run.scratch.write("other.bin", some_tokens(13 * 16 + 1, 11)), 1);
  std::string weights = read_file(run.scratch / "teacher/model.safetensors");
  weights[weights.size() - 2] ^= 1;
  run.scratch.write("teacher/model.safetensors", weights);
  expect_new(9, "", 2);
}

TEST(StoredTeacher, HasOneLineForADamagedFile) {
  const StoredTeacherRun run;
  ASSERT_EQ(run.train_stored("run", 9, "--set train.steps=1").exit_code, 0);
  for (const std::string& path : run.stored()) std::filesystem::resize_file(path, 5000);
  const Outcome outcome = run.train_stored("run", 9);
  EXPECT_EQ(outcome.exit_code, 4) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("the file has 5000 bytes"));
  EXPECT_THAT(outcome.err, HasSubstr("delete the file; the next run computes the log-probabilities again"));
  EXPECT_EQ(std::ranges::count(outcome.err, '\n'), 1) << outcome.err;
}

TEST(StoredTeacher, RefusesWhatCannotBeStored) {
  const StoredTeacherRun run;
  const Outcome large = run.train_stored("run", 212);
  EXPECT_EQ(large.exit_code, 3);
  EXPECT_THAT(large.err, HasSubstr("train.objective.top_k: 212 is above the vocabulary of 211 tokens"));
  const Outcome alone = run.train("run", "--set train.objective.top_k=4");
  EXPECT_EQ(alone.exit_code, 3);
  EXPECT_THAT(alone.err, HasSubstr("train.objective.teacher_cache: the key is missing"));
  const Outcome reverse = run.train_stored("run", 4, "--set train.objective.loss_type=reverse");
  EXPECT_EQ(reverse.exit_code, 3);
  EXPECT_THAT(reverse.err, HasSubstr("train.objective.loss_type: reverse compares the probabilities of all tokens"));
}

}  // namespace
}  // namespace gantry::testing
