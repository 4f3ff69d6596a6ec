// Runs of `gantry train` that resume from a checkpoint: their numbers equal those of an uninterrupted run.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "gantry/checkpoint/format/files.h"
#include "resume_case.h"

namespace gantry::testing {
namespace {

struct Case {
  const char* name;
  int ranks;
  const char* sections;
};

// The cases differ in the state of a run: moments, master weights, loss scale, and the placement of the state.
constexpr Case kCases[] = {
    {"one rank", 1, "optimizer: {name: adamw, clip_grad_norm: 1.0}"},
    {"tp 2 pp 2", 4, "parallel: {tensor: 2, pipeline: 2}\nschedule: {microbatches: 2}\nlr_schedule: {name: cosine}"},
    {"pp 2, 2 chunks", 2, "parallel: {pipeline: 2}\nschedule: {name: interleaved_1f1b, microbatches: 2, chunks: 2}"},
    {"zero 1", 4, "parallel: {data: 2, zero: 1, tensor: 2}\ncheckpoint: {async: true}"},
    {"zero 2", 4, "parallel: {data: 2, zero: 2, pipeline: 2}\nschedule: {microbatches: 2}\nprecision: bfloat16"},
    {"bfloat16", 2, "parallel: {data: 2, zero: 1}\nprecision: bfloat16\noptimizer: {name: sgd, momentum: 0.9}"},
    {"float16", 2,
     "parallel: {pipeline: 2}\nprecision: float16\nloss_scale: {growth_interval: 2}\nlr_schedule: {name: wsd, "
     "decay_steps: 3}"},
};

// A run that resumes after kStop steps ends as one that never stopped. Gives the run that saved.
Outcome expect_resumes(const ScratchFolder& scratch, const Case& how) {
  const std::string config = write_config(scratch, how.sections);
  const Outcome full = run_program(train_line(scratch, config, "whole"));
  EXPECT_EQ(full.exit_code, 0) << full.err;
  const Outcome saved =
      run_program(train_line(scratch, config, "parts", fmt::format("--set checkpoint.every={}", kStop)));
  EXPECT_EQ(saved.exit_code, 0) << saved.err;
  run_program("rm -r " + (scratch / "parts/c/step-000006") + " " + (scratch / "parts/c/step-000008"));
  const Outcome resumed = run_program(train_line(scratch, config, "parts", "--set checkpoint.resume=auto"));
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_NE(resumed.out.find("at step 3"), std::string::npos) << resumed.out;
  EXPECT_EQ(resumed.err.find("warning"), std::string::npos) << resumed.err;
  expect_same_end(scratch, "parts", "whole", kSteps, how.ranks);
  return saved;
}

TEST(Resume, SameLayoutGoesOnToTheSameBits) {
  for (const Case& how : kCases) {
    SCOPED_TRACE(how.name);
    const ScratchFolder scratch;
    expect_resumes(scratch, how);
    EXPECT_FALSE(
        std::filesystem::exists(scratch / fmt::format("parts/c/step-{:06}/rank-{:05}.safetensors", kSteps, how.ranks)));
  }
}

// Adam's bias correction counts the steps that were taken; dropout and data count all steps.
TEST(Resume, SkippedStepsDoNotCountForTheOptimizer) {
  const ScratchFolder scratch;
  const Outcome saved = expect_resumes(
      scratch, {"float16 that overflows at first", 2,
                "parallel: {pipeline: 2}\nprecision: float16\nloss_scale: {initial: 1e+6, hysteresis: 1}"});
  EXPECT_NE(saved.err.find("warning: step 1 is skipped"), std::string::npos) << saved.err;
  EXPECT_EQ(saved.err.find("warning: step 3 is skipped"), std::string::npos) << saved.err;
}

// Older versions did not save the index of the learning rate. The first line of a manifest holds the hash of the rest.
void remove_rate_index(const ScratchFolder& scratch, const std::string& manifest) {
  auto all = nlohmann::json::parse(read_file(scratch / manifest));
  ASSERT_EQ(all["progress"].erase("learning_rate_index"), 1u);
  all.erase("hash");
  const std::string body = all.dump().substr(1);
  scratch.write(manifest, "{\"hash\": \"" + hash_of(body) + "\"," + body);
}

TEST(Resume, AnOlderVersionsRatesAreOneWarning) {
  const ScratchFolder scratch;
  const std::string config = write_config(scratch, "parallel: {pipeline: 2}\nlr_schedule: {name: cosine}");
  ASSERT_EQ(run_program(train_line(scratch, config, "run", fmt::format("--set checkpoint.every={}", kStop))).exit_code,
            0);
  const std::string checkpoint = fmt::format("run/c/step-{:06}", kStop), line = "rates were those of one step later";
  const auto resumed = [&](const std::string& name, const std::string& sets = "") {
    return run_program(
        train_line(scratch, config, name, fmt::format("--set checkpoint.resume={} {}", scratch / checkpoint, sets)));
  };
  EXPECT_EQ(resumed("same").err.find(line), std::string::npos);
  remove_rate_index(scratch, checkpoint + "/manifest.json");
  const Outcome older = resumed("older");
  EXPECT_EQ(older.exit_code, 0) << older.err;
  EXPECT_NE(older.err.find(line), std::string::npos) << older.err;
  EXPECT_EQ(older.err.find(line), older.err.rfind(line)) << older.err;
  // A constant rate is the same at every step.
  const Outcome constant = resumed("constant", "--set lr_schedule.name=constant");
  EXPECT_EQ(constant.exit_code, 0) << constant.err;
  EXPECT_EQ(constant.err.find(line), std::string::npos) << constant.err;
}

TEST(Resume, DamagedOnesArePassedOverAndNamed) {
  const ScratchFolder scratch;
  const std::string config = write_saved_run(scratch, "run"), newest = scratch / "run/c/step-000004";
  const std::string full = read_file(newest + "/rank-00000.safetensors");
  run_program("truncate -s 1000 " + newest + "/rank-00000.safetensors; mkdir " + (scratch / "run/c/step-000009"));
  const Outcome resumed = run_program(train_line(scratch, config, "run", "--set checkpoint.resume=auto"));
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(resumed.err, fmt::format("warning: a checkpoint was passed over: {0}/step-000009 has no manifest.json\n"
                                     "warning: a checkpoint was passed over: {0}/step-000004/rank-00000.safetensors "
                                     "has 1000 bytes instead of {1}\n",
                                     scratch / "run/c", full.size()));
  EXPECT_NE(resumed.out.find("step-000002 at step 2"), std::string::npos) << resumed.out;
  EXPECT_TRUE(read_file(newest + "/rank-00000.safetensors") == full);
  // If all checkpoints are incomplete, the run does not start from scratch.
  run_program("rm " + (scratch / "run/c") + "/step-00000[24]/manifest.json");
  const Outcome none = run_program(train_line(scratch, config, "run", "--set checkpoint.resume=auto"));
  EXPECT_EQ(none.exit_code, 5) << none.err;
  EXPECT_NE(none.err.find("there is no complete checkpoint"), std::string::npos) << none.err;
}

TEST(Resume, TheLastSaveComesBeforeTheLastEvaluation) {
  for (const char* async : {"false", "true"}) {
    const ScratchFolder scratch;
    const std::string config = evaluated_run(scratch, 4, 321, /*is_sound=*/false);
    const Outcome failed =
        run_program(train_line(scratch, config, "run", fmt::format("--set checkpoint.async={}", async)));
    EXPECT_EQ(failed.exit_code, 4) << failed.err;
    EXPECT_NE(failed.err.find("outside the model's vocabulary"), std::string::npos) << failed.err;
    const Outcome stands = run_program(gantry_program() + " checkpoint verify " + (scratch / "run/c"));
    EXPECT_EQ(stands.exit_code, 0) << stands.err;
    EXPECT_NE(stands.out.find("step-000004"), std::string::npos) << stands.out;
  }
}

constexpr const char* kFourRanks = "parallel: {tensor: 2, pipeline: 2}\nschedule: {microbatches: 2}";

// Files can't grow beyond 200 KB, as on a disk that is full.
TEST(Resume, AFailedSaveIsSaidInOneLineAndTheLastCheckpointStands) {
  const ScratchFolder scratch;
  const std::string config = write_config(scratch, kFourRanks, 64);
  ASSERT_EQ(run_program(train_line(scratch, config, "run", "--set train.steps=4")).exit_code, 0);
  for (const char* async : {"false", "true"}) {
    const Outcome failed = run_program(
        "trap '' XFSZ; ulimit -f 400; exec " +
        train_line(
            scratch, config, "run",
            fmt::format("--set checkpoint.resume=auto --set checkpoint.every=2 --set checkpoint.async={}", async)));
    EXPECT_EQ(failed.exit_code, 6) << failed.err;
    EXPECT_NE(failed.err.find("File too large"), std::string::npos) << failed.err;
    EXPECT_EQ(std::count(failed.err.begin(), failed.err.end(), '\n'), 1) << failed.err;
    const Outcome stands = run_program(gantry_program() + " checkpoint verify " + (scratch / "run/c"));
    EXPECT_EQ(stands.exit_code, 0) << stands.err;
    EXPECT_NE(stands.out.find("step-000004"), std::string::npos) << stands.out;
  }
  EXPECT_EQ(run_program(train_line(scratch, config, "run", "--set checkpoint.resume=auto")).exit_code, 0);
}

}  // namespace
}  // namespace gantry::testing
