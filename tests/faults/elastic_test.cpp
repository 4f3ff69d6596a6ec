// Elastic jobs: whatever ranks are lost and join, the run is bitwise identical to one without faults and with the
// same numbers of replicas.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "grid.h"
#include "program.h"

namespace gantry::testing {
namespace {

constexpr int kElasticSteps = 6;

struct ElasticCase {
  std::string faults;
  int ranks = 3;
  std::string sets;  // "--set KEY=VALUE ...": in addition, also for the run without faults
  std::string elastic = "rejoin: false";
  std::string hosts;  // the host of each rank, as if there were several
};

class ElasticJob {
 public:
  explicit ElasticJob(const ElasticCase& one) : ranks_(one.ranks), sets_(one.sets) {
    const std::string text = some_letters(3000, 23);
    const std::string text_file = scratch_.write("text.txt", text);
    for (std::size_t at; (at = sets_.find("TEXT")) != std::string::npos;) sets_.replace(at, 4, text_file);
    config_ = fmt::format(
        "model: {{policy: gpt2, config: {{n_embd: 16, n_layer: 2, n_head: 2, vocab_size: 256, n_positions: 16, "
        "resid_pdrop: 0.1}}}}\nschedule: {{microbatch_size: 2}}\ndata: {{format: text, path: \"{}\", "
        "sequence_length: 16, batch_size: 7}}\ncomm: {{threads_per_rank: 1, timeout_seconds: 60}}\n"
        "optimizer: {{name: adamw, clip_grad_norm: 0.5}}\ncheckpoint: {{path: {}, resume: auto}}\noutput: {}\n"
        "train: {{steps: {}, log_every: 100}}\n",
        text_file, scratch_ / "c", scratch_ / "o", kElasticSteps);
    // On a busy machine, a rank that is not lost can be silent for several seconds.
    const bool has_heartbeat = one.elastic.find("heartbeat") != std::string::npos;
    const std::string file = scratch_.write("elastic.yaml", fmt::format("{}elastic: {{{}{}}}\n", config_, one.elastic,
                                                                        has_heartbeat ? "" : ", heartbeat: 20"));
    std::string keys = sets_;  // the program takes them without --set
    for (std::size_t at; (at = keys.find("--set ")) != std::string::npos;) keys.erase(at, 6);
    const std::string hosts = one.hosts.empty() ? "" : "GANTRY_PRETEND_HOSTS=" + one.hosts;
    outcome_ =
        run_program(fmt::format("GANTRY_FAULTS='{}' {} {} launch --backend tcp -n {} -- {}/tests/elastic_trainer {} {}",
                                one.faults, hosts, gantry_program(), ranks_, GANTRY_BUILD_DIR, file, keys));
  }

  std::string file(const std::string& name) const { return read_file(scratch_ / name); }
  const Outcome& outcome() const { return outcome_; }
  std::string all_output() const { return outcome_.err + outcome_.out; }

  // The number of replicas of each step, from the metrics.
  std::vector<int> replicas() const {
    std::vector<int> replicas;
    std::istringstream lines(read_file(scratch_ / "o/metrics.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      const auto metrics = nlohmann::json::parse(line);
      if (!metrics.contains("loss")) continue;
      replicas.push_back(metrics.value("replicas", 0));
      EXPECT_EQ(metrics["step"], static_cast<int>(replicas.size())) << "each step once, in order\n" << all_output();
    }
    return replicas;
  }

  // The steps after which the run was evaluated.
  std::vector<int> evaluations() const {
    std::vector<int> steps;
    std::istringstream lines(read_file(scratch_ / "o/metrics.jsonl"));
    for (std::string line; std::getline(lines, line);)
      if (const auto metrics = nlohmann::json::parse(line); metrics.contains("eval_loss"))
        steps.push_back(metrics["step"]);
    return steps;
  }

  // Runs the same steps without faults, in threads: a run for each stretch of equal numbers of replicas.
  void expect_bits_of_a_run_without_faults() {
    const std::vector<int> steps = replicas();
    ASSERT_EQ(steps.size(), static_cast<std::size_t>(kElasticSteps)) << all_output();
    const std::string plain = scratch_.write("plain.yaml", config_);
    for (std::size_t end = 1; end <= steps.size(); ++end) {
      if (end < steps.size() && steps[end] == steps[end - 1]) continue;
      const Outcome part = run_program(
          fmt::format("{} train {} --set train.steps={} --set parallel.data={} --set output={} --set "
                      "checkpoint.path={} {}",
                      gantry_program(), plain, end, steps[end - 1], scratch_ / "po", scratch_ / "pc", sets_));
      ASSERT_EQ(part.exit_code, 0) << part.err;
    }
    EXPECT_EQ(losses("o"), losses("po")) << all_output();
    int files = 0;
    for (int rank = 0; rank < ranks_; ++rank) {
      const std::string file = fmt::format("/step-{:06}/rank-{:05}.safetensors", kElasticSteps, rank);
      const std::string bytes = read_file(scratch_ / ("pc" + file));
      EXPECT_TRUE(bytes == read_file(scratch_ / ("c" + file))) << file << "\n" << all_output();
      files += bytes.empty() ? 0 : 1;
    }
    EXPECT_GT(files, 0);
  }

  std::vector<double> losses_of_steps(const std::string& folder) const {
    std::vector<double> losses;
    std::istringstream lines(read_file(scratch_ / (folder + "/metrics.jsonl")));
    for (std::string line; std::getline(lines, line);)
      if (const auto metrics = nlohmann::json::parse(line); metrics.contains("loss")) losses.push_back(metrics["loss"]);
    return losses;
  }

  std::vector<double> losses_of_one_rank() const {
    const Outcome alone =
        run_program(fmt::format("{} train {} --set output={} --set checkpoint.path={}/c {}", gantry_program(),
                                scratch_.write("plain.yaml", config_), scratch_ / "one", scratch_ / "one", sets_));
    EXPECT_EQ(alone.exit_code, 0) << alone.err;
    return losses_of_steps("one");
  }

  Outcome run_without_launch() const {
    return run_program(fmt::format("{} train {}", gantry_program(), scratch_ / "elastic.yaml"));
  }

 private:
  std::string losses(const std::string& folder) const {
    std::string losses;
    std::istringstream lines(read_file(scratch_ / (folder + "/metrics.jsonl")));
    for (std::string line; std::getline(lines, line);)
      if (line.find("eval_loss") == std::string::npos) losses += line.substr(0, line.find(",\"lr\"")) + "\n";
    return losses;
  }

  const int ranks_;
  std::string sets_;
  ScratchFolder scratch_;
  std::string config_;
  Outcome outcome_;
};

// `replicas`: of each step; empty if the place of the fault leaves it open whether its step is completed.
void expect_exact(const ElasticCase& one, const std::vector<int>& replicas = {}) {
  SCOPED_TRACE(one.faults + "\n" + one.sets);
  ElasticJob job(one);
  ASSERT_EQ(job.outcome().exit_code, 0) << job.all_output();
  if (!replicas.empty()) EXPECT_EQ(job.replicas(), replicas) << job.all_output();
  job.expect_bits_of_a_run_without_faults();
}

TEST(Elastic, ARunWithoutFaultsIsThatOfTheSameReplicas) { expect_exact({}, {3, 3, 3, 3, 3, 3}); }

TEST(Elastic, ALostRankCostsItsReplicaAndAtMostTheStepInProgress) {
  expect_exact({"kill@batch:1:3:0"}, {3, 3, 2, 2, 2, 2});
  expect_exact({"kill@backward:2:4:0"}, {3, 3, 3, 2, 2, 2});
  expect_exact({"kill@step:2:3:0"}, {3, 3, 3, 2, 2, 2});
  expect_exact({"kill@before_step:1:3:0"});
}

TEST(Elastic, TheFirstRankMayBeLost) {
  expect_exact({"kill@batch:0:3:0"}, {3, 3, 2, 2, 2, 2});
  expect_exact({"kill@step:0:3:0"}, {3, 3, 3, 2, 2, 2});
  expect_exact({"kill@before_step:0:1:0"});
}

TEST(Elastic, OneReplicaMayBeLeft) {
  expect_exact({"kill@batch:0:2:0 kill@batch:2:4:1"}, {3, 2, 2, 1, 1, 1});
  expect_exact({"kill@batch:0:2:0 kill@batch:1:2:0"});
}

TEST(Elastic, AReplicaOfSeveralRanksIsLostAsAWhole) {
  std::size_t index = 0;
  for (const char* layout : {"tensor=2", "pipeline=2", "context=2"})
    for (const int rank : turn_of<int>(index++, 2, {0, 3}))
      expect_exact({.faults = fmt::format("kill@batch:{}:3:0", rank),
                    .ranks = 4,
                    .sets = fmt::format("--set parallel.{}", layout)},
                   {2, 2, 1, 1, 1, 1});
}

TEST(Elastic, FewerThanTheLeastReplicasEndTheJob) {
  const ElasticJob job({.faults = "kill@batch:1:3:0", .ranks = 2, .elastic = "min_replicas: 2"});
  EXPECT_EQ(job.outcome().exit_code, 7) << job.all_output();
  EXPECT_NE(job.outcome().err.find("launch: rank 1 was killed by SIGKILL"), std::string::npos) << job.all_output();
  EXPECT_EQ(job.replicas().size(), 2u);
}

TEST(Elastic, AnErrorOfARankEndsTheJob) {
  const ElasticJob job({.faults = "error@batch:1:3:0"});
  EXPECT_EQ(job.outcome().exit_code, 9) << job.all_output();
}

TEST(Elastic, ASuspendedRankIsLost) {
  ElasticJob job({.faults = "stop@batch:1:3:0", .elastic = "rejoin: false, heartbeat: 0.5"});
  ASSERT_EQ(job.outcome().exit_code, 0) << job.all_output();
  EXPECT_NE(job.outcome().err.find("rank 1 was suspended by SIGSTOP"), std::string::npos) << job.all_output();
  job.expect_bits_of_a_run_without_faults();
}

// Neither rank has ended, so the one that is reported first leaves.
TEST(Elastic, ARankWithoutConnectionsIsLost) {
  ElasticJob job({.faults = "cut@batch:1:3:0", .elastic = "rejoin: false, heartbeat: 1", .hosts = "0,1,2"});
  ASSERT_EQ(job.outcome().exit_code, 0) << job.all_output();
  ASSERT_FALSE(job.replicas().empty());
  EXPECT_EQ(job.replicas().back(), 2) << job.all_output();
  job.expect_bits_of_a_run_without_faults();
}

TEST(Elastic, AStopOnRequestEndsTheJobInOrder) {
  for (const char* faults : {"term@step:1:3:0", "kill@batch:0:2:0 term@step:1:3:1"}) {
    const ElasticJob job({.faults = faults});
    EXPECT_EQ(job.outcome().exit_code, 75) << job.all_output();
    EXPECT_FALSE(job.file(fmt::format("c/step-{:06}/manifest.json", job.replicas().size())).empty())
        << job.all_output();
  }
}

TEST(Elastic, InFloat64TheLossesAreThoseOfOneRank) {
  ElasticJob job(
      {.faults = "kill@batch:1:2:0 wait@step:0:2:1", .sets = "--set precision=float64", .elastic = "rejoin: true"});
  ASSERT_EQ(job.outcome().exit_code, 0) << job.all_output();
  const std::vector<double> alone = job.losses_of_one_rank(), losses = job.losses_of_steps("o");
  ASSERT_EQ(losses.size(), static_cast<std::size_t>(kElasticSteps));
  ASSERT_EQ(alone.size(), losses.size());
  for (std::size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], alone[i], 1e-10);
}

TEST(Elastic, OtherStartsAreRejected) {
  const ElasticJob job({.ranks = 2, .elastic = "min_replicas: 3"});
  EXPECT_EQ(job.outcome().exit_code, 3) << job.all_output();
  EXPECT_NE(job.outcome().err.find("elastic.min_replicas: the job has 2 replicas"), std::string::npos)
      << job.all_output();
  const Outcome alone = job.run_without_launch();
  EXPECT_EQ(alone.exit_code, 3) << alone.err;
  EXPECT_NE(alone.err.find("gantry launch --backend tcp"), std::string::npos) << alone.err;
}

TEST(Elastic, ALossInASaveOrAnEvaluationCostsNeither) {
  std::size_t index = 0;
  for (const char* moment : {"save", "evaluation"}) {
    for (const char* async : {"false", "true"})
      for (const int rank : turn_of<int>(index++, 2, {0, 1})) {
        const ElasticCase one{.faults = fmt::format("kill@{}:{}:4:0", moment, rank),
                              .sets = fmt::format("--set checkpoint.every=2 --set checkpoint.async={} --set "
                                                  "evaluation.path=TEXT --set evaluation.every=2 --set "
                                                  "evaluation.batches=2",
                                                  async)};
        SCOPED_TRACE(one.faults + " " + async);
        ElasticJob job(one);
        ASSERT_EQ(job.outcome().exit_code, 0) << job.all_output();
        EXPECT_EQ(job.replicas(), (std::vector<int>{3, 3, 3, 3, 2, 2})) << job.all_output();
        EXPECT_EQ(job.evaluations(), (std::vector<int>{2, 4, 6})) << job.all_output();
        EXPECT_FALSE(job.file("c/step-000004/manifest.json").empty()) << job.all_output();
        job.expect_bits_of_a_run_without_faults();
      }
    ++index;
  }
}

TEST(Elastic, ALossWhileAGenerationBeginsBeginsAnother) {
  expect_exact({"kill@batch:0:2:0 kill@body:1:0:1"}, {3, 1, 1, 1, 1, 1});
  expect_exact({"kill@batch:0:2:0 kill@start:1:1:1"}, {3, 1, 1, 1, 1, 1});
  expect_exact({"kill@step:2:2:0 kill@start:0:2:1"}, {3, 3, 1, 1, 1, 1});
}

TEST(Elastic, ALostRankJoinsAgainAtTheEndOfAStep) {
  const std::string rejoin = "rejoin: true";
  expect_exact({.faults = "kill@batch:1:2:0 wait@step:0:2:1", .elastic = rejoin}, {3, 2, 3, 3, 3, 3});
  expect_exact({.faults = "kill@batch:0:2:0 wait@step:1:2:1", .elastic = rejoin}, {3, 2, 3, 3, 3, 3});
  expect_exact({.faults = "kill@batch:1:2:0 wait@step:0:2:1 kill@batch:1:4:2 wait@step:2:4:3", .elastic = rejoin},
               {3, 2, 3, 2, 3, 3});
}

// The training state is lost with the rank that had it.
TEST(Elastic, ARankThatJoinedAloneDoesNotStartAgain) {
  const ElasticJob job(
      {.faults = "kill@batch:1:2:0 wait@step:0:2:1 kill@body:0:0:2", .ranks = 2, .elastic = "heartbeat: 1"});
  EXPECT_EQ(job.outcome().exit_code, 7) << job.all_output();
  EXPECT_EQ(job.replicas(), (std::vector<int>{2, 1})) << job.all_output();
}

// The remaining ranks save the last step once more, with their number of ranks.
TEST(Elastic, ALossAfterTheRunDoesNotRepeatIt) {
  const ElasticJob job({.faults = "kill@after:1:0:0"});
  EXPECT_EQ(job.outcome().exit_code, 0) << job.all_output();
  EXPECT_EQ(job.replicas(), (std::vector<int>{3, 3, 3, 3, 3, 3})) << job.all_output();
  EXPECT_FALSE(job.file("c/step-000006/manifest.json").empty()) << job.all_output();
}

TEST(Elastic, AReplicaOfSeveralRanksJoinsAsAWhole) {
  for (const char* layout : {"tensor=2", "pipeline=2"})
    expect_exact({.faults = "kill@batch:1:2:0 wait@step:2:2:1",
                  .ranks = 4,
                  .sets = fmt::format("--set parallel.{} --set parallel.order=[dp,pp,tp]", layout),
                  .elastic = "rejoin: true"},
                 {2, 1, 2, 2, 2, 2});
}

TEST(Elastic, AReplicaThatIsLostAsItJoinsIsStartedAgain) {
  for (const char* moment : {"body:1:0", "start:1:2", "batch:1:3"})
    expect_exact({.faults = fmt::format("kill@batch:1:2:0 wait@step:0:2:1 kill@{}:2 wait@step:0:3:3", moment),
                  .elastic = "rejoin: true"},
                 {3, 2, 2, 3, 3, 3});
}

// Places by chance, from a seed. One rank survives all of them.
ElasticCase elastic_case_of(unsigned seed) {
  std::mt19937 random(seed);
  const auto any = [&](int most) { return static_cast<int>(random() % static_cast<unsigned>(most)); };
  const char* const moments[] = {"batch", "backward", "before_step", "step", "save", "start"};
  ElasticCase one{.ranks = 3 + any(2), .sets = any(2) ? "--set checkpoint.every=1 --set checkpoint.async=true" : ""};
  one.elastic = any(2) ? "rejoin: true" : "rejoin: false";
  const int survivor = any(one.ranks);
  for (int faults = 1 + any(3); faults > 0; --faults)
    one.faults += fmt::format("kill@{}:{}:{}:{} ", moments[any(6)], (survivor + 1 + any(one.ranks - 1)) % one.ranks,
                              1 + any(kElasticSteps - 1), any(3));
  return one;
}

TEST(Elastic, AnyListOfLossesAndJoinsIsExact) {
  const unsigned seeds = is_long_form() ? 200 : 3;
  for (unsigned seed = 0; seed < seeds; ++seed) expect_exact(elastic_case_of(seed));
}

}  // namespace
}  // namespace gantry::testing
