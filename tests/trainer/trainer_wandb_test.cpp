// Offline runs of Weights & Biases: the history, summary, configuration and end of new, resumed, failed and evaluated
// runs, read by a reader of the test and by wandb's own.
#include <cmath>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <nlohmann/json.hpp>

#include "gantry/trainer/wandb_files.h"
#include "logged_run.h"
#include "wandb_reader.h"

namespace gantry::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using WandbJson = nlohmann::json;

std::vector<std::string> wandb_files(const ScratchFolder& scratch) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(scratch / "run/wandb"))
    if (entry.path().extension() == ".wandb") files.push_back(entry.path());
  return files;
}

struct WandbRun {
  std::string id, project, name, host;
  WandbJson config = WandbJson::object(), summary = WandbJson::object();
  std::vector<WandbJson> history;
  std::vector<int> exits;
};

// Python's JSON has infinities; JSON of the C++ library has none.
WandbJson value_of_item(const std::string& text) {
  return WandbJson::accept(text) ? WandbJson::parse(text) : WandbJson(text);
}

// Puts the items (key 1, value 16) of a record into `values`.
void put_items(const std::vector<std::string>& items, WandbJson& values) {
  for (const std::string& item : items) {
    auto fields = proto_fields(item);
    if (!fields[1].empty()) values[fields[1].front()] = value_of_item(fields[16].front());
    if (!fields[2].empty()) values[fields[2].at(0)][fields[2].at(1)] = value_of_item(fields[16].front());
  }
}

WandbRun wandb_run(const std::string& path) {
  WandbRun run;
  std::uint64_t number = 0;
  for (const std::string& record : wandb_records(read_file(path))) {
    auto fields = proto_fields(record);
    EXPECT_EQ(fields[1], std::vector{std::to_string(++number)});
    if (number == 1) EXPECT_THAT(fields[21], ElementsAre(HasSubstr("gantry ")));
    for (const auto& bytes : fields[17]) {
      auto start = proto_fields(bytes);
      run = {.id = start[1].at(0), .project = start[3].at(0), .name = start[8].at(0), .host = start[13].at(0)};
      put_items(proto_fields(start[4].at(0))[1], run.config);
      EXPECT_GT(std::stoll(proto_fields(start[17].at(0))[1].at(0)), 1'600'000'000);
    }
    for (const auto& bytes : fields[5]) put_items(proto_fields(bytes)[1], run.config);
    for (const auto& bytes : fields[3]) put_items(proto_fields(bytes)[1], run.summary);
    for (const auto& bytes : fields[2]) {
      put_items(proto_fields(bytes)[1], run.history.emplace_back());
      EXPECT_EQ(proto_fields(proto_fields(bytes)[2].at(0))[1].at(0), run.history.back().at("_step").dump());
    }
    for (const auto& bytes : fields[18]) {
      const auto code = proto_fields(bytes)[1];
      run.exits.push_back(code.empty() ? 0 : std::stoi(code.front()));
    }
  }
  return run;
}

std::vector<int> steps_with(const WandbRun& run, const std::string& metric) {
  std::vector<int> steps;
  for (const WandbJson& row : run.history)
    if (row.contains(metric)) steps.push_back(row.at("_step"));
  return steps;
}

TEST(TrainerWandb, ARunThatIsResumedHasEachStepOnce) {
  const ScratchFolder scratch;
  ASSERT_EQ(run_logged(logged_config(scratch, "[wandb]", 3)), 0);
  ASSERT_THAT(wandb_files(scratch), SizeIs(1));
  const std::string path = wandb_files(scratch).front();
  const WandbRun first = wandb_run(path);
  const std::string folder = std::filesystem::path(path).parent_path().filename();
  EXPECT_THAT(folder, ::testing::MatchesRegex("offline-run-[0-9]{8}_[0-9]{6}-" + first.id));
  EXPECT_EQ(std::filesystem::path(path).filename(), "run-" + first.id + ".wandb");
  EXPECT_THAT(first.id, ::testing::MatchesRegex("[a-z0-9]{8}"));
  EXPECT_EQ(first.project, "gantry");
  EXPECT_EQ(first.name, "run");
  EXPECT_NE(first.host, "");
  EXPECT_EQ(first.config.at("train").at("steps"), 3);
  EXPECT_EQ(first.config.at("model").at("config").at("n_embd"), 8);
  EXPECT_THAT(steps_with(first, "train/loss"), ElementsAre(1, 2, 3));
  EXPECT_THAT(steps_with(first, "evaluation/perplexity"), ElementsAre(2, 3));
  EXPECT_THAT(first.exits, ElementsAre(0));
  EXPECT_EQ(first.summary.at("train/loss"), first.history.back().at("train/loss"));
  EXPECT_EQ(first.summary.at("_step"), 3);
  EXPECT_GE(first.summary.at("_wandb").at("runtime"), 0);

  std::filesystem::remove_all(scratch / "checkpoints/step-000003");  // the run was killed after its third step
  scratch.write("run/wandb/" + folder + "/run-" + first.id + ".wandb.synced", "");
  ASSERT_EQ(run_logged(logged_config(scratch, "[wandb]", 4)), 0);
  ASSERT_THAT(wandb_files(scratch), ElementsAre(path));
  EXPECT_FALSE(std::filesystem::exists(path + ".synced"));
  const WandbRun resumed = wandb_run(path);
  EXPECT_THAT(steps_with(resumed, "train/loss"), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(steps_with(resumed, "evaluation/perplexity"), ElementsAre(2, 4));
  EXPECT_EQ(resumed.history.at(0), first.history.at(0));
  EXPECT_EQ(resumed.history.at(1), first.history.at(1));
  for (int i = 1; i < 4; ++i) EXPECT_GE(resumed.history[i].at("_runtime"), resumed.history[i - 1].at("_runtime"));
  EXPECT_EQ(resumed.config.at("train").at("steps"), 4);
  EXPECT_EQ(resumed.id, first.id);
  EXPECT_THAT(resumed.exits, ElementsAre(0));
}

TEST(TrainerWandb, ANewRunIsAddedAndAFailureIsItsExitCode) {
  const ScratchFolder scratch;
  const auto fails = [](int, std::int64_t step) {
    if (step == 2) throw std::runtime_error("a fault");
  };
  const int exit_code = run_logged(logged_config(scratch, "[wandb]", 4), fails);
  EXPECT_NE(exit_code, 0);
  const std::string failed = wandb_files(scratch).at(0);
  EXPECT_THAT(steps_with(wandb_run(failed), "train/loss"), ElementsAre(1));
  EXPECT_THAT(wandb_run(failed).exits, ElementsAre(exit_code));
  ASSERT_EQ(run_logged(logged_config(scratch, "[wandb]", 1)), 0);
  EXPECT_THAT(wandb_files(scratch), SizeIs(2));
  EXPECT_THAT(wandb_run(failed).exits, ElementsAre(exit_code));
}

Config config_of_files(const ScratchFolder& scratch, const std::string& more = "") {
  return logged_config(scratch, "[wandb]", 9, more);
}

TEST(WandbFiles, NumbersThatAreNotFinite) {
  const ScratchFolder scratch;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  {
    WandbFiles files(config_of_files(scratch), 0);
    files.write(StepMetrics{.step = 1,
                            .loss = kInfinity,
                            .grad_norm = std::nan(""),
                            .lr = -kInfinity,
                            .step_seconds = 1,
                            .peak_memory_bytes = {}});
    EXPECT_TRUE(wandb_run(wandb_files(scratch).at(0)).history.empty());  // an evaluation may follow
  }
  const WandbRun run = wandb_run(wandb_files(scratch).at(0));
  ASSERT_THAT(run.history, SizeIs(1));
  EXPECT_EQ(run.history[0].at("train/loss"), "Infinity");
  EXPECT_EQ(run.history[0].at("train/grad_norm"), "NaN");
  EXPECT_EQ(run.history[0].at("train/lr"), "-Infinity");
  EXPECT_THAT(run.exits, ElementsAre());
}

// An evaluation of the checkpoint of an earlier step joins the row of this step.
TEST(WandbFiles, AnEvaluationAloneKeepsLaterSteps) {
  const ScratchFolder scratch;
  const auto step = [](std::int64_t number) {
    return StepMetrics{.step = number, .loss = 2, .step_seconds = 1, .peak_memory_bytes = {}};
  };
  {
    WandbFiles files(config_of_files(scratch), 0);
    for (int number = 1; number < 4; ++number) files.write(step(number));
    files.finish(0);
  }
  const WandbRun before = wandb_run(wandb_files(scratch).at(0));
  const Config evaluation = config_of_files(scratch, "");
  Config alone = evaluation;
  alone.evaluation.only = true;
  for (const std::int64_t done : {2, 7}) {
    WandbFiles files(alone, done);
    EXPECT_EQ(files.run_id(), before.id);
    files.write(EvaluationMetrics{.step = done, .loss = 1.5, .tokens = 1});
    files.finish(0);
  }
  const WandbRun after = wandb_run(wandb_files(scratch).at(0));
  EXPECT_THAT(steps_with(after, "train/loss"), ElementsAre(1, 2, 3));
  EXPECT_THAT(steps_with(after, "evaluation/loss"), ElementsAre(2, 7));
  EXPECT_THAT(steps_with(after, "_step"), ElementsAre(1, 2, 3, 7));
  EXPECT_EQ(after.history[1].at("_timestamp"), before.history[1].at("_timestamp"));
  EXPECT_EQ(after.history[1].at("evaluation/loss"), 1.5);
  EXPECT_THAT(after.exits, ElementsAre(0));
  EXPECT_EQ(after.config, before.config);
}

// A run that wandb's client has written is not continued.
TEST(WandbFiles, RunsOfOtherProgramsAreLeftAlone) {
  const ScratchFolder scratch;
  std::filesystem::create_directories(scratch / "run/wandb/offline-run-20990101_000000-abcdefgh");
  const std::string file =
      scratch.write("run/wandb/offline-run-20990101_000000-abcdefgh/run-abcdefgh.wandb", "another");
  const WandbFiles files(config_of_files(scratch), 5);
  EXPECT_NE(files.run_id(), "abcdefgh");
  EXPECT_EQ(read_file(file), "another");
}

constexpr const char* kWandbReader = R"(
import json, sys
import wandb
from wandb.proto import wandb_internal_pb2
wandb._set_internal_process(disable=True)
from wandb.sdk.internal.datastore import DataStore
store = DataStore()
store.open_for_scan(sys.argv[1])
kinds, rows = [], []
while (data := store.scan_data()) is not None:
    record = wandb_internal_pb2.Record()
    record.ParseFromString(data)
    kinds.append(record.WhichOneof("record_type"))
    if kinds[-1] == "run":
        run = {"id": record.run.run_id, "name": record.run.display_name, "project": record.run.project,
               "config": {item.key: json.loads(item.value_json) for item in record.run.config.update}}
    if kinds[-1] == "history":
        rows.append({item.key: json.loads(item.value_json) for item in record.history.item})
print(json.dumps({"kinds": kinds, "run": run, "losses": [[row["_step"], row["train/loss"]] for row in rows]}))
)";

TEST(TrainerWandb, WandbReadsTheRun) {
  const std::string python = std::getenv("GANTRY_WANDB_PYTHON") ? std::getenv("GANTRY_WANDB_PYTHON") : "python3";
  if (run_program(python + " -c 'import wandb.sdk.internal.datastore'").exit_code != 0)
    GTEST_SKIP() << "needs a Python with wandb 0.19 (GANTRY_WANDB_PYTHON)";
  const ScratchFolder scratch;
  WandbJson losses = WandbJson::array();
  ASSERT_EQ(
      train(logged_config(scratch, "[wandb]", 2),
            [&](Trainer& trainer) {
              if (trainer.world().is_main())
                trainer.add({.on_step = [&](const StepMetrics& step) { losses.push_back({step.step, step.loss}); }});
              trainer.run();
            }),
      0);
  const Outcome read = run_program(
      fmt::format("{} {} {}", python, scratch.write("reader.py", kWandbReader), wandb_files(scratch).at(0)));
  ASSERT_EQ(read.exit_code, 0) << read.err;
  const WandbJson run = WandbJson::parse(read.out);
  EXPECT_EQ(run.at("kinds"), WandbJson({"header", "run", "history", "summary", "history", "summary", "exit"}));
  EXPECT_EQ(run.at("losses"), losses);
  EXPECT_EQ(run.at("run").at("name"), "run");
  EXPECT_EQ(run.at("run").at("config").at("optimizer").at("name"), "adamw");
}

}  // namespace
}  // namespace gantry::testing
