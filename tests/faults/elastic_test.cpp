// Elastic jobs: whatever ranks are lost and join, the run is bitwise identical to one without faults and with the
// same numbers of replicas.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <regex>
#include <string>
#include <vector>

#include "elastic_job.h"
#include "grid.h"

namespace gantry::testing {
namespace {

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

TEST(Elastic, AGenerationLeavesNoFilesOpen) {
  const ElasticJob job({.faults = "files@batch:0:1:0 kill@batch:1:2:0 wait@step:0:2:1 kill@batch:2:4:2 "
                                  "wait@step:0:4:3 files@batch:0:6:4",
                        .elastic = "rejoin: true"});
  ASSERT_EQ(job.outcome().exit_code, 0) << job.all_output();
  const std::string counts = job.outcome().out;
  const std::regex line("open files: ([0-9]+)");
  const std::vector<std::string> files(std::sregex_token_iterator(counts.begin(), counts.end(), line, 1), {});
  ASSERT_EQ(files.size(), 2u) << job.all_output();
  EXPECT_EQ(files[0], files[1]);
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

TEST(Elastic, AReplicaThatLosesOneRankAsItJoinsIsStartedAgain) {
  expect_exact({.faults = "kill@batch:1:2:0 kill@joins:1:0:* wait@step:2:2:1",
                .ranks = 4,
                .sets = "--set parallel.tensor=2 --set parallel.order=[dp,pp,tp]",
                .elastic = "rejoin: true",
                .each_fault_once = true},
               {2, 1, 2, 2, 2, 2});
}

TEST(Elastic, AReplicaThatIsLostAsItJoinsIsStartedAgain) {
  for (const char* moment : {"body:1:0", "start:1:2", "batch:1:3"})
    expect_exact({.faults = fmt::format("kill@batch:1:2:0 wait@step:0:2:1 kill@{}:2 wait@step:0:3:3", moment),
                  .elastic = "rejoin: true"},
                 {3, 2, 2, 3, 3, 3});
}

}  // namespace
}  // namespace gantry::testing
