// Runs of `gantry train` that stop, on request or not, and go on: the numbers of a run that nothing disturbed.
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sstream>

#include "background.h"

namespace gantry::testing {
namespace {

constexpr int kSteps = 8, kStop = 3;

struct Case {
  const char* name;
  int ranks;
  const char* sections;
};

// What a run keeps from step to step differs between them: moments, masters, loss scale, who holds what.
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

std::string write_config(const ScratchFolder& scratch, const std::string& sections, int width = 16, int steps = kSteps,
                         int batch = 4) {
  std::string text;
  for (int i = 0; i < 3000; ++i) text += static_cast<char>('a' + i * i % 23);
  return scratch.write(
      "train.yaml",
      fmt::format("model: {{policy: gpt2, config: {{n_embd: {}, n_layer: 4, n_head: 2, vocab_size: 256, n_positions: "
                  "32, resid_pdrop: 0.1}}}}\ndata: {{format: text, path: \"{}\", sequence_length: 32, batch_size: "
                  "{}}}\ntrain: {{steps: {}}}\ncomm: {{threads_per_rank: 1}}\n{}\n",
                  width, scratch.write("text.txt", text), batch, steps, sections));
}

std::string train_line(const ScratchFolder& scratch, const std::string& config, const std::string& name,
                       const std::string& sets = "") {
  return fmt::format("{} train {} --set output={} --set checkpoint.path={}/c {}", gantry_program(), config,
                     scratch / name, scratch / name, sets);
}

// What must not depend on interruptions: everything up to the learning rate.
std::string losses_of(const ScratchFolder& scratch, const std::string& name) {
  std::string losses;
  std::istringstream lines(read_file(scratch / (name + "/metrics.jsonl")));
  for (std::string line; std::getline(lines, line);) losses += line.substr(0, line.find(",\"lr\"")) + "\n";
  return losses;
}

long lines_of(const ScratchFolder& scratch, const std::string& name) {
  const std::string losses = losses_of(scratch, name);
  return std::count(losses.begin(), losses.end(), '\n');
}

void expect_same_end(const ScratchFolder& scratch, const std::string& a, const std::string& b, int steps, int ranks) {
  EXPECT_EQ(losses_of(scratch, a), losses_of(scratch, b));
  EXPECT_EQ(lines_of(scratch, a), steps);
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string file = fmt::format("/c/step-{:06}/rank-{:05}.safetensors", steps, rank);
    const std::string bytes = read_file(scratch / (a + file));
    EXPECT_FALSE(bytes.empty()) << file;
    EXPECT_TRUE(bytes == read_file(scratch / (b + file))) << file << " differs";
  }
}

// A run that resumes after kStop steps ends as one that never stopped. Gives the run that saved.
Outcome expect_resumes(const ScratchFolder& scratch, const Case& how) {
  const std::string config = write_config(scratch, how.sections);
  const Outcome whole = run_program(train_line(scratch, config, "whole"));
  EXPECT_EQ(whole.exit_code, 0) << whole.err;
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

// Adam's bias correction goes by the steps that were taken, dropout and data by all of them.
TEST(Resume, SkippedStepsDoNotCountForTheOptimizer) {
  const ScratchFolder scratch;
  const Outcome saved = expect_resumes(
      scratch, {"float16 that overflows at first", 2,
                "parallel: {pipeline: 2}\nprecision: float16\nloss_scale: {initial: 1e+6, hysteresis: 1}"});
  EXPECT_NE(saved.err.find("warning: step 1 is skipped"), std::string::npos) << saved.err;
  EXPECT_EQ(saved.err.find("warning: step 3 is skipped"), std::string::npos) << saved.err;
}

// A run of 4 steps that has saved after the second and the fourth.
std::string write_saved_run(const ScratchFolder& scratch, const std::string& name) {
  const std::string config = write_config(scratch, "checkpoint: {every: 2}", 16, 4);
  const Outcome saved = run_program(train_line(scratch, config, name));
  EXPECT_EQ(saved.exit_code, 0) << saved.err;
  return config;
}

TEST(Resume, DamagedOnesArePassedOverAndNamed) {
  const ScratchFolder scratch;
  const std::string config = write_saved_run(scratch, "run"), newest = scratch / "run/c/step-000004";
  const std::string whole = read_file(newest + "/rank-00000.safetensors");
  run_program("truncate -s 1000 " + newest + "/rank-00000.safetensors; mkdir " + (scratch / "run/c/step-000009"));
  const Outcome resumed = run_program(train_line(scratch, config, "run", "--set checkpoint.resume=auto"));
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(resumed.err,
            fmt::format("warning: passed over {0}/step-000009 has no manifest.json\n"
                        "warning: passed over {0}/step-000004/rank-00000.safetensors has 1000 bytes instead of {1}\n",
                        scratch / "run/c", whole.size()));
  EXPECT_NE(resumed.out.find("step-000002 at step 2"), std::string::npos) << resumed.out;
  EXPECT_TRUE(read_file(newest + "/rank-00000.safetensors") == whole);
  // Where none is whole nothing is begun anew in their place.
  run_program("rm " + (scratch / "run/c") + "/step-00000[24]/manifest.json");
  const Outcome none = run_program(train_line(scratch, config, "run", "--set checkpoint.resume=auto"));
  EXPECT_EQ(none.exit_code, 5) << none.err;
  EXPECT_NE(none.err.find("has no complete checkpoint"), std::string::npos) << none.err;
}

TEST(Resume, AnotherModelOfTheSameShapesIsRefused) {
  const ScratchFolder scratch;
  const std::string config = write_saved_run(scratch, "run");
  const auto resume = [&](const std::string& sets) {
    return run_program(train_line(scratch, config, "run", "--set checkpoint.resume=auto --set train.steps=5 " + sets));
  };
  const Outcome other = resume("--set model.config.n_head=4");
  EXPECT_EQ(other.exit_code, 5) << other.err;
  EXPECT_EQ(other.err, fmt::format("error: {}: is of a model with n_head 2; expected n_head 4, this run's; a resumed "
                                   "run may change anything but the model\n",
                                   scratch / "run/c/step-000004"));
  const Outcome family = resume(
      "--set model.policy=bert --set 'model.config={hidden_size: 16, num_attention_heads: 2, num_hidden_layers: 1, "
      "intermediate_size: 16, vocab_size: 256, max_position_embeddings: 32}'");
  EXPECT_EQ(family.exit_code, 5) << family.err;
  EXPECT_NE(family.err.find("is of a model of the policy 'gpt2'; expected 'bert', this run's"), std::string::npos)
      << family.err;
  // What it computes is the same: another dropout, a default that is spelt out.
  const Outcome same = resume("--set model.config.resid_pdrop=0.2 --set model.config.layer_norm_epsilon=1.0e-5");
  EXPECT_EQ(same.exit_code, 0) << same.err;
}

// Samples would be skipped or repeated: refused unless that is allowed, and then said.
TEST(Resume, ChangedDataOrOrderIsRefusedUnlessItIsAllowed) {
  const ScratchFolder scratch;
  const std::string config = write_saved_run(scratch, "run"), step = scratch / "run/c/step-000004";
  run_program("cp -r " + (scratch / "run") + " " + (scratch / "kept"));
  const std::string other = scratch.write("other.txt", std::string(4000, 'a'));
  const auto resume = [&](const std::string& sets) {
    run_program(fmt::format("rm -r {0}; cp -r {1} {0}", scratch / "run", scratch / "kept"));
    return run_program(train_line(scratch, config, "run", "--set checkpoint.resume=auto --set train.steps=5 " + sets));
  };
  const auto expect_refused = [&](const std::string& sets, const std::string& what) {
    SCOPED_TRACE(sets);
    const Outcome refused = resume(sets);
    EXPECT_EQ(refused.exit_code, 5) << refused.err;
    EXPECT_EQ(refused.err, "error: " + step + ": was made with " + what +
                               ": samples would be skipped or repeated; expected the data and the order that it was "
                               "made with; go on with those, or set checkpoint.allow_changes: true\n");
    const Outcome allowed = resume(sets + " --set checkpoint.allow_changes=true");
    EXPECT_EQ(allowed.exit_code, 0) << allowed.err;
    EXPECT_NE(allowed.err.find("warning: the checkpoint was made with "), std::string::npos) << allowed.err;
  };
  expect_refused("--set train.seed=7", "train.seed 1, and this run has 7");
  expect_refused("--set data.shuffle=false", "data.shuffle true, and this run has false");
  expect_refused("--set data.sequence_length=16", "data.sequence_length 32, and this run has 16");
  expect_refused(
      "--set data.path=" + other,
      fmt::format("data.path {}, and this run has {}; with data of so many samples: 93, and this run has 124",
                  scratch / "text.txt", other));
  const Outcome same = resume("--set data.batch_size=8 --set data.prefetch=0");
  EXPECT_EQ(same.exit_code, 0) << same.err;
  EXPECT_EQ(same.err, "");
  run_program("echo more of the same text, so that there are more samples >> " + (scratch / "text.txt"));
  expect_refused("", "data of so many samples: 93, and this run has 95");
}

TEST(Resume, AnotherNumberOfStepsIsNamed) {
  const ScratchFolder scratch;
  const std::string config = write_saved_run(scratch, "run");
  const auto resume = [&](const std::string& sets) {
    const Outcome resumed = run_program(train_line(scratch, config, "run", "--set checkpoint.resume=auto " + sets));
    EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
    return resumed;
  };
  EXPECT_NE(resume("--set train.steps=5").out.find("train.steps 4, and this run has 5\n"), std::string::npos);
  EXPECT_EQ(resume("--set train.steps=6 --set lr_schedule.name=cosine").err,
            "warning: the checkpoint was made with train.steps 5, and this run has 6: the learning rate of lr_schedule "
            "cosine goes by them\n");
}

// Tokens from 0 to 255, and at the end one that no model here has.
std::string write_tokens(const ScratchFolder& scratch, const std::string& name, int tokens, bool is_sound) {
  std::string bytes;
  for (int i = 0; i < tokens; ++i) bytes += {static_cast<char>('a' + i * i % 23), '\0'};
  if (!is_sound) bytes.replace(bytes.size() - 2, 2, "\xff\x7f");
  return scratch.write(name, bytes);
}

std::string evaluated_run(const ScratchFolder& scratch, int steps, int held_out, bool is_sound) {
  return write_config(scratch,
                      fmt::format("evaluation: {{path: {}}}", write_tokens(scratch, "held_out", held_out, is_sound)),
                      16, steps) +
         " --set data.format=tokens --set data.path=" + write_tokens(scratch, "tokens", 3000, true);
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

// The held-out data would take many minutes.
TEST(Resume, AStopInAnEvaluationIsObeyedAndTheEvaluationComesLater) {
  const ScratchFolder scratch;
  const std::string config = evaluated_run(scratch, 4, 4'000'000, /*is_sound=*/true);
  const std::string line = train_line(scratch, config, "run", "--set checkpoint.resume=auto ");
  for (int attempt = 0; attempt < 2; ++attempt) {  // the second one goes on with the evaluation alone
    Background run(line);
    ASSERT_TRUE(run.wait_until([&] {
      return attempt == 0 ? lines_of(scratch, "run") == 4
                          : !read_file(scratch / "run/report.json").empty() && lines_of(scratch, "run") == 4;
    })) << run.err();
    run.signal(SIGTERM);
    const Outcome stopped = run.wait();
    ASSERT_EQ(stopped.exit_code, 75) << stopped.err;
    EXPECT_EQ(lines_of(scratch, "run"), 4);
    EXPECT_FALSE(read_file(scratch / "run/c/step-000004/manifest.json").empty());
    run_program("rm -f " + (scratch / "run/report.json"));
  }
  const Outcome resumed = run_program(line + "--set evaluation.batches=2");
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(lines_of(scratch, "run"), 5);
  EXPECT_NE(read_file(scratch / "run/metrics.jsonl").find("\"step\":4,\"eval_loss\""), std::string::npos);
  EXPECT_NE(resumed.out.find("step 4/4  eval_loss"), std::string::npos) << resumed.out;
  run_program(line + "--set evaluation.batches=2");
  EXPECT_EQ(lines_of(scratch, "run"), 5) << "once";
}

TEST(Resume, AFreshRunKeepsWhatAnEarlierOneHasLeft) {
  const ScratchFolder scratch;
  const std::string config = write_saved_run(scratch, "run");
  const std::string former = read_file(scratch / "run/metrics.jsonl");
  run_program("rm -r " + (scratch / "run/c"));
  const Outcome fresh = run_program(train_line(scratch, config, "run", "--set train.steps=2"));
  EXPECT_EQ(fresh.exit_code, 0) << fresh.err;
  EXPECT_NE(fresh.out.find("metrics of an earlier run: kept as " + (scratch / "run/metrics.1.jsonl")),
            std::string::npos)
      << fresh.out;
  EXPECT_EQ(read_file(scratch / "run/metrics.1.jsonl"), former);
  EXPECT_EQ(lines_of(scratch, "run"), 2);
  for (const char* kept : {"config.1.yaml", "report.1.html", "report.1.json"})
    EXPECT_FALSE(read_file(scratch / (std::string("run/") + kept)).empty()) << kept;
}

// Of a run that is told to begin before what its folder has.
TEST(Resume, AnEarlierRunsCheckpointsAreNotTakenByARestart) {
  const ScratchFolder scratch;
  const std::string config = write_saved_run(scratch, "run"), folder = scratch / "run/c";
  run_program("cp -r " + folder + " " + (scratch / "kept"));
  const auto train = [&](const std::string& restarts, const std::string& resume) {
    run_program(fmt::format("rm -r {0}; cp -r {1} {0}", folder, scratch / "kept"));
    return run_program(restarts +
                       train_line(scratch, config, "run",
                                  "--set checkpoint.every=0 --set train.steps=5 --set checkpoint.resume=" + resume));
  };
  for (const std::string& resume : {std::string("none"), folder + "/step-000002", scratch / "kept/step-000004"}) {
    SCOPED_TRACE(resume);
    const Outcome refused = train("GANTRY_RESTART=0 GANTRY_RESTARTS=3 ", resume);
    EXPECT_EQ(refused.exit_code, 5) << refused.err;
    EXPECT_NE(refused.err.find("checkpoint.path: " + folder +
                               "/step-000004: is of an earlier run; a restart would take it for its own"),
              std::string::npos)
        << refused.err;
    EXPECT_EQ(std::count(refused.err.begin(), refused.err.end(), '\n'), 1) << refused.err;
    EXPECT_EQ(lines_of(scratch, "run"), 4);
  }
  const Outcome warned = train("", folder + "/step-000002");
  EXPECT_EQ(warned.exit_code, 0) << warned.err;
  EXPECT_EQ(warned.err, "warning: " + folder + "/step-000004 is of an earlier run; resume: auto would take it until " +
                            "this run saves a later step\n");
  // Nothing of another run's lies there, or it is what is asked for.
  for (const std::string& resume : {std::string("auto"), folder, folder + "/step-000004/"}) {
    const Outcome taken = train("GANTRY_RESTARTS=3 ", resume);
    EXPECT_EQ(taken.exit_code, 0) << taken.err;
    EXPECT_EQ(taken.err, "");
  }
}

// Runs until a few steps are there, signals, and gives what became of it.
Outcome stop_early(const ScratchFolder& scratch, const std::string& line, const std::string& name, int number) {
  Background run(line);
  EXPECT_TRUE(run.wait_until([&] { return lines_of(scratch, name) >= kStop; })) << run.err();
  run.signal(number);
  return run.wait();
}

constexpr const char* kSlow = "parallel: {tensor: 2, pipeline: 2}\nschedule: {microbatches: 2}";

TEST(Resume, AStopOnRequestSavesAndTheRestIsAsIfNothingHadHappened) {
  constexpr int kMany = 60;
  const ScratchFolder scratch;
  const std::string config = write_config(scratch, kSlow, 64, kMany, 8);
  ASSERT_EQ(run_program(train_line(scratch, config, "whole")).exit_code, 0);
  for (const int number : {SIGTERM, SIGINT, SIGUSR1}) {
    const std::string name = fmt::format("signal{}", number);
    const std::string line = train_line(scratch, config, name, "--set checkpoint.resume=auto");
    const Outcome stopped = stop_early(scratch, line, name, number);
    ASSERT_EQ(stopped.exit_code, 75) << stopped.err;
    const long done = lines_of(scratch, name);
    EXPECT_LT(done, kMany);
    EXPECT_NE(stopped.out.find(fmt::format("/c/step-{:06}", done)), std::string::npos) << stopped.out;
    const Outcome resumed = run_program(line);
    ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
    EXPECT_NE(resumed.out.find(fmt::format("at step {}", done)), std::string::npos) << resumed.out;
    expect_same_end(scratch, name, "whole", kMany, 4);
  }
}

TEST(Resume, ASecondSignalEndsAtOnce) {
  const ScratchFolder scratch;
  const std::string config = write_config(scratch, "", 512, 1000, 16);
  Background run(train_line(scratch, config, "run"));
  ASSERT_TRUE(run.wait_until([&] { return lines_of(scratch, "run") >= 1; })) << run.err();
  run.signal(SIGTERM);
  ASSERT_TRUE(run.wait_until([&] { return run.err().find("once more to end at once") != std::string::npos; }));
  run.signal(SIGTERM);
  EXPECT_EQ(run.wait(20).exit_code, 128 + SIGTERM) << run.err();
}

// Files can't grow beyond 200 KB, as on a disk that is full.
TEST(Resume, AFailedSaveIsSaidInOneLineAndTheLastCheckpointStands) {
  const ScratchFolder scratch;
  const std::string config = write_config(scratch, kSlow, 64);
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

#ifdef GANTRY_MPIRUN
TEST(Resume, UnderMpirunToo) {
  constexpr int kMany = 60;
  const ScratchFolder scratch;
  const std::string config = write_config(scratch, kSlow, 64, kMany, 8);
  ASSERT_EQ(run_program(train_line(scratch, config, "whole")).exit_code, 0);
  const std::string line =
      std::string(GANTRY_MPIRUN) + " -n 4 " + train_line(scratch, config, "mpi", "--set checkpoint.resume=auto");
  // mpirun hands SIGUSR1 on to every rank; SIGTERM it takes as the wish to kill them.
  const Outcome stopped = stop_early(scratch, line, "mpi", SIGUSR1);
  ASSERT_EQ(stopped.exit_code, 75) << stopped.err;
  EXPECT_LT(lines_of(scratch, "mpi"), kMany);
  const Outcome resumed = run_program(line);
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  expect_same_end(scratch, "mpi", "whole", kMany, 4);
}

// As a batch system does it: each process is told, here one of them alone.
TEST(Resume, OneRankThatIsToldStopsTheJob) {
  const ScratchFolder scratch;
  const std::string config = write_config(scratch, kSlow, 64, 2000, 8);
  Background run(std::string(GANTRY_MPIRUN) + " -n 4 sh -c 'echo $$ >" + (scratch / "pid") +
                 "$OMPI_COMM_WORLD_RANK; exec " + train_line(scratch, config, "mpi") + "'");
  ASSERT_TRUE(run.wait_until([&] { return lines_of(scratch, "mpi") >= kStop; })) << run.err();
  run_program("kill -TERM $(cat " + (scratch / "pid2") + ")");
  const Outcome stopped = run.wait();
  EXPECT_EQ(stopped.exit_code, 75) << stopped.err;
  const std::string folder = fmt::format("/c/step-{:06}/manifest.json", lines_of(scratch, "mpi"));
  EXPECT_FALSE(read_file(scratch / ("mpi" + folder)).empty()) << folder;
}
#endif

}  // namespace
}  // namespace gantry::testing
