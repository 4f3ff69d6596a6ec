// The files of train.log_files: events of each rank, and runs of MLflow, also of resumed and failed runs.
#include <filesystem>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sstream>

#include "gantry/core/base/warning.h"
#include "gantry/trainer/train.h"
#include "logged_run.h"
#include "program.h"

namespace gantry::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using Json = nlohmann::json;

std::vector<Json> events_of(const ScratchFolder& scratch, int rank, const std::string& folder = "events") {
  std::vector<Json> events;
  std::istringstream lines(read_file(scratch / fmt::format("run/{}/rank-{:05}.jsonl", folder, rank)));
  for (std::string line; std::getline(lines, line);) events.push_back(Json::parse(line));
  return events;
}

// "step 1", ...
std::vector<std::string> named_events(const std::vector<Json>& events) {
  std::vector<std::string> names;
  for (const Json& event : events)
    names.push_back(fmt::format("{} {}", event.at("event").get<std::string>(), event.at("step").get<int>()));
  return names;
}

TEST(TrainerLogFiles, EventsTellWhatHappenedToEachRank) {
  const ScratchFolder scratch;
  const auto warns = [](int rank, std::int64_t step) {
    if (rank == 1 && step == 1) print_warning("a warning of the program");
  };
  ASSERT_EQ(run_logged(logged_config(scratch, "[events]", 2), warns), 0);
  std::vector<double> losses;
  for (int rank = 0; rank < 2; ++rank) {
    auto events = events_of(scratch, rank);
    for (const Json& event : events) {
      EXPECT_EQ(event.at("rank"), rank);
      EXPECT_GT(event.at("time"), 1.6e9);
    }
    std::erase_if(events, [](const Json& event) { return event.at("event") == "warning"; });
    EXPECT_THAT(named_events(events), ElementsAre("start 0", "step 1", "step 2", "save 2", "evaluation 2", "end 2"));
    EXPECT_EQ(events[0].at("steps"), 2);
    EXPECT_EQ(events[0].at("ranks"), 2);
    losses.push_back(events[1].at("loss"));
    EXPECT_EQ(events.back().at("how"), "done");
    EXPECT_THAT(events.back().at("checkpoint").get<std::string>(), HasSubstr("step-000002"));
  }
  EXPECT_EQ(losses.at(0), losses.at(1));
  std::vector<std::string> warnings;
  for (const Json& event : events_of(scratch, 0))
    if (event.at("event") == "warning") warnings.push_back(event.at("text"));
  EXPECT_THAT(warnings, IsSupersetOf({std::string("a warning of the program")}));
  for (const Json& event : events_of(scratch, 1)) EXPECT_NE(event.at("event"), "warning");
  EXPECT_FALSE(std::filesystem::exists(scratch / "run/tensorboard"));
}

TEST(TrainerLogFiles, EventsOfResumedAndFailedRuns) {
  const ScratchFolder scratch;
  ASSERT_EQ(run_logged(logged_config(scratch, "[events]", 2)), 0);
  const auto fails = [](int rank, std::int64_t step) {
    if (rank == 1 && step == 4) throw std::runtime_error("the program's own fault");
  };
  EXPECT_NE(run_logged(logged_config(scratch, "[events]", 6), fails), 0);
  const auto events = events_of(scratch, 1);
  EXPECT_THAT(named_events({events.begin() + 6, events.end()}),
              ElementsAre("start 2", "resume 2", "step 3", "failure 3"));
  EXPECT_THAT(events.back().at("error").get<std::string>(), HasSubstr("the program's own fault"));
  EXPECT_GT(events.back().at("exit_code"), 0);
  EXPECT_EQ(events_of(scratch, 0).back().at("event"), "failure");
  // A new run keeps the files of the earlier one.
  Config fresh = logged_config(scratch, "[events]", 1);
  fresh.checkpoint.resume = "none";
  ASSERT_EQ(run_logged(fresh), 0);
  EXPECT_EQ(events_of(scratch, 1, "events.1"), events);
  EXPECT_EQ(events_of(scratch, 1).front().at("step"), 0);
}

// The one run of MLflow in OUTPUT.
std::string mlflow_run(const ScratchFolder& scratch) {
  std::string found;
  for (const auto& entry : std::filesystem::directory_iterator(scratch / "run/mlruns/0"))
    if (entry.is_directory()) {
      EXPECT_EQ(found, "");
      found = entry.path();
    }
  return found;
}

// The steps of a metric.
std::vector<int> mlflow_steps(const std::string& run, const std::string& metric) {
  std::vector<int> steps;
  std::istringstream lines(read_file(run + "/metrics/" + metric));
  std::int64_t time = 0;
  double value = 0;
  for (int step = 0; lines >> time >> value >> step;) {
    EXPECT_GT(time, 1'600'000'000'000);
    steps.push_back(step);
  }
  return steps;
}

TEST(TrainerLogFiles, MlflowHasTheMetricsAndKeysOfARunThatIsResumed) {
  const ScratchFolder scratch;
  ASSERT_EQ(run_logged(logged_config(scratch, "[tensorboard, mlflow]", 3)), 0);
  EXPECT_TRUE(std::filesystem::exists(scratch / "run/tensorboard"));
  const std::string run = mlflow_run(scratch);
  EXPECT_THAT(read_file(run + "/meta.yaml"), HasSubstr("status: 3\n"));
  std::filesystem::remove_all(scratch / "checkpoints/step-000003");  // the run was killed after its third step
  const auto looks = [&](int, std::int64_t) {
    EXPECT_THAT(read_file(run + "/meta.yaml"), HasSubstr("end_time: null"));
  };
  ASSERT_EQ(run_logged(logged_config(scratch, "[mlflow]", 4), looks), 0);
  EXPECT_EQ(mlflow_run(scratch), run);
  EXPECT_THAT(mlflow_steps(run, "train/loss"), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(mlflow_steps(run, "evaluation/perplexity"), ElementsAre(2, 4));
  EXPECT_EQ(read_file(run + "/params/train.steps"), "4");
  EXPECT_EQ(read_file(run + "/params/schedule.name"), "1f1b");
  EXPECT_THAT(read_file(run + "/params/model.config"), HasSubstr("\"n_embd\":8"));
  EXPECT_EQ(read_file(run + "/tags/mlflow.runName"), "run");
  EXPECT_THAT(read_file(run + "/meta.yaml"), HasSubstr("run_id: '" + std::filesystem::path(run).filename().string()));
  EXPECT_THAT(read_file(scratch / "run/mlruns/0/meta.yaml"), HasSubstr("experiment_id: '0'"));
}

TEST(TrainerLogFiles, MlflowHasTheEndOfAFailedRun) {
  const ScratchFolder scratch;
  const auto fails = [](int, std::int64_t) { throw std::runtime_error("a fault"); };
  EXPECT_NE(run_logged(logged_config(scratch, "[mlflow]", 2), fails), 0);
  EXPECT_THAT(read_file(mlflow_run(scratch) + "/meta.yaml"), HasSubstr("status: 4\n"));
}

constexpr const char* kMlflowReader = R"(
import json, os, sys
os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
from mlflow.tracking import MlflowClient
client = MlflowClient("file://" + sys.argv[1])
run = client.search_runs(["0"])[0]
losses = [[each.step, each.value] for each in client.get_metric_history(run.info.run_id, "train/loss")]
print(json.dumps({"status": run.info.status, "name": run.info.run_name, "losses": losses,
                  "lr": run.data.params["optimizer.lr"], "metrics": len(run.data.metrics)}))
)";

TEST(TrainerLogFiles, MlflowReadsTheRun) {
  const std::string python = std::getenv("GANTRY_MLFLOW_PYTHON") ? std::getenv("GANTRY_MLFLOW_PYTHON") : "python3";
  if (run_program(python + " -c 'import mlflow.tracking'").exit_code != 0)
    GTEST_SKIP() << "needs a Python with mlflow or mlflow-skinny (GANTRY_MLFLOW_PYTHON)";
  const ScratchFolder scratch;
  std::vector<double> losses;
  ASSERT_EQ(train(logged_config(scratch, "[mlflow]", 2),
                  [&](Trainer& trainer) {
                    if (trainer.world().is_main())
                      trainer.add({.on_step = [&](const StepMetrics& step) { losses.push_back(step.loss); }});
                    trainer.run();
                  }),
            0);
  const Outcome read =
      run_program(fmt::format("{} {} {}", python, scratch.write("reader.py", kMlflowReader), scratch / "run/mlruns"));
  ASSERT_EQ(read.exit_code, 0) << read.err;
  const Json run = Json::parse(read.out);
  EXPECT_EQ(run.at("status"), "FINISHED");
  EXPECT_EQ(run.at("name"), "run");
  EXPECT_EQ(run.at("metrics"), 8);
  EXPECT_EQ(run.at("losses"), Json({{1, losses.at(0)}, {2, losses.at(1)}}));
}

}  // namespace
}  // namespace gantry::testing
