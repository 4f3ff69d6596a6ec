// Runs of `gantry train` that receive a stop request: they save the completed steps, and a resumed run has the numbers
// of an uninterrupted one.
#include <csignal>

#include "background.h"
#include "resume_case.h"

namespace gantry::testing {
namespace {

// Starts a run, signals it after a few steps, and returns its outcome.
Outcome stop_early(const ScratchFolder& scratch, const std::string& line, const std::string& name, int number) {
  Background run(line);
  EXPECT_TRUE(run.wait_until([&] { return lines_of(scratch, name) >= kStop; })) << run.err();
  run.signal(number);
  return run.wait();
}

constexpr const char* kSlow = "parallel: {tensor: 2, pipeline: 2}\nschedule: {microbatches: 2}";

TEST(Stop, AStopOnRequestSavesAndTheRestIsAsIfNothingHadHappened) {
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

// A custom training loop that uses train_by_loop: examples/own_loop.cpp.
TEST(Stop, ALoopOfOnesOwnReturns75) {
  const ScratchFolder scratch;
  Background run(
      fmt::format("{}/examples/example_own_loop {}/examples/quickstart.yaml train.steps=1000000 "
                  "data.path={}/README.md checkpoint.path={} checkpoint.every=5",
                  GANTRY_BUILD_DIR, GANTRY_SOURCE_DIR, GANTRY_SOURCE_DIR, scratch / "c"));
  ASSERT_TRUE(run.wait_until([&] { return !read_file(scratch / "c/step-000005/manifest.json").empty(); })) << run.err();
  run.signal(SIGTERM);
  const Outcome stopped = run.wait();
  EXPECT_EQ(stopped.exit_code, 75) << stopped.err;
}

// The held-out data would take many minutes.
TEST(Stop, AStopInAnEvaluationIsObeyedAndTheEvaluationComesLater) {
  const ScratchFolder scratch;
  const std::string config = evaluated_run(scratch, 4, 4'000'000, /*is_sound=*/true);
  const std::string line = train_line(scratch, config, "run", "--set checkpoint.resume=auto ");
  for (int attempt = 0; attempt < 2; ++attempt) {  // the second attempt only repeats the evaluation
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

// A model that has its own process stopped, in a step of 16 microbatches.
constexpr const char* kStopping =
    "model: {policy: stopping_gpt2, config: {n_embd: 16, n_layer: 4, n_head: 2, vocab_size: 256, n_positions: 32, "
    "resid_pdrop: 0.1}}\nlibraries: [" GANTRY_BUILD_DIR "/tests/libstopping_plugin.so]\n";
constexpr int kMicrobatches = 16;

std::string stopping_config(const ScratchFolder& scratch, const std::string& parallel) {
  const std::string config = write_config(
      scratch,
      fmt::format("parallel: {{{}}}\nschedule: {{microbatches: {}}}\noptimizer: {{name: adamw, clip_grad_norm: 1.0}}",
                  parallel, kMicrobatches),
      16, 4, 2 * kMicrobatches);
  const std::string text = read_file(config);
  return scratch.write("train.yaml", kStopping + text.substr(text.find("data: ")));
}

std::string stop_at(const ScratchFolder& scratch, int rank, int forward) {
  return fmt::format("GANTRY_TEST_STOP='{} {} {}' ", rank, forward, scratch / "late");
}

// A stop in the fifth microbatch of the third step: two steps are saved, and the resumed run has the same numbers.
void expect_stop_in_step(const ScratchFolder& scratch, const std::string& line) {
  const Outcome stopped = run_program(stop_at(scratch, 1, 2 * kMicrobatches + 5) + line);
  EXPECT_EQ(stopped.exit_code, 75) << stopped.err;
  EXPECT_EQ(lines_of(scratch, "parts"), 2);
  EXPECT_NE(stopped.out.find("/c/step-000002\n"), std::string::npos) << stopped.out;
  const Outcome resumed = run_program(line);
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_NE(resumed.out.find("at step 2"), std::string::npos) << resumed.out;
  expect_same_end(scratch, "parts", "whole", 4, 4);
}

TEST(Stop, ALongStepEndsWithTheMicrobatchUnderWay) {
  for (const char* parallel :
       {"tensor: 2, pipeline: 2", "data: 2, pipeline: 2, zero: 1", "data: 2, zero: 2, tensor: 2"}) {
    SCOPED_TRACE(parallel);
    const ScratchFolder scratch;
    const std::string config = stopping_config(scratch, parallel);
    ASSERT_EQ(run_program(train_line(scratch, config, "whole")).exit_code, 0);
    expect_stop_in_step(scratch, train_line(scratch, config, "parts", "--set checkpoint.resume=auto"));
    // The one that was begun, and for ranks that compute together the next one: they vote a microbatch ahead.
    const std::string late = read_file(scratch / "late");
    EXPECT_LE(std::count(late.begin(), late.end(), '\n'), 2 * 4) << late;
  }
}

TEST(Stop, InTheFirstStepThereIsNothingToSave) {
  const ScratchFolder scratch;
  const std::string config = stopping_config(scratch, "data: 2, pipeline: 2");
  const std::string line = train_line(scratch, config, "run", "--set checkpoint.resume=auto");
  const Outcome stopped = run_program(stop_at(scratch, 0, 3) + line);
  EXPECT_EQ(stopped.exit_code, 75) << stopped.err;
  EXPECT_NE(stopped.out.find("stopped before the first step of this run was complete"), std::string::npos)
      << stopped.out;
  EXPECT_EQ(stopped.out.find("checkpoint: "), std::string::npos) << stopped.out;
  const Outcome again = run_program(line);
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(lines_of(scratch, "run"), 4);
}

// In the evaluation's second batch, of one pass through the stages.
TEST(Stop, ABatchOfAnEvaluationEndsWithTheMicrobatchUnderWay) {
  const ScratchFolder scratch;
  const std::string config = stopping_config(scratch, "tensor: 2, pipeline: 2");
  const std::string line =
      train_line(scratch, config, "run",
                 "--set checkpoint.resume=auto --set train.steps=1 --set evaluation.path=" + (scratch / "text.txt"));
  const Outcome stopped = run_program(stop_at(scratch, 3, 2 * kMicrobatches + 5) + line);
  EXPECT_EQ(stopped.exit_code, 75) << stopped.err;
  EXPECT_EQ(lines_of(scratch, "run"), 1);
  const std::string late = read_file(scratch / "late");
  EXPECT_LE(std::count(late.begin(), late.end(), '\n'), 2 * 4) << late;
  const Outcome resumed = run_program(line);
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_NE(resumed.out.find("step 1/1  eval_loss"), std::string::npos) << resumed.out;
}

// The first one comes within a forward that does not end.
TEST(Stop, ASecondSignalEndsAtOnce) {
  const ScratchFolder scratch;
  const std::string config = stopping_config(scratch, "pipeline: 2");
  // `env` is needed because the shell of Background executes its argument, and a variable is not a program.
  Background run("env GANTRY_TEST_HOLD='1 20' " + stop_at(scratch, 1, 20) + train_line(scratch, config, "run"));
  ASSERT_TRUE(
      run.wait_until([&] { return run.err().find("send the signal again to end at once") != std::string::npos; }));
  run.signal(SIGTERM);
  EXPECT_EQ(run.wait(20).exit_code, 128 + SIGTERM) << run.err();
}

#ifdef GANTRY_MPIRUN
// A single process receives the signal, and the control plane notifies the others.
TEST(Stop, ALongStepOfOtherProcessesEndsToo) {
  const ScratchFolder scratch;
  const std::string config = stopping_config(scratch, "data: 2, pipeline: 2");
  ASSERT_EQ(run_program(train_line(scratch, config, "whole")).exit_code, 0);
  expect_stop_in_step(scratch, std::string(GANTRY_MPIRUN) + " -n 4 " +
                                   train_line(scratch, config, "parts",
                                              "--set checkpoint.resume=auto --set comm.heartbeat_seconds=0.1"));
}

std::string sample_of(const std::string& out) {
  const std::string head = "sample (greedy):\n";
  const auto begin = out.find(head);
  return begin == std::string::npos ? "" : out.substr(begin + head.size(), out.find("metrics: ") - begin - head.size());
}

// The process with the first stage receives the signal. The process with the last stage, which chooses the tokens, is
// notified.
TEST(Stop, ASampleEndsWithItsTokenWhicheverProcessIsSignalled) {
  const ScratchFolder scratch;
  const std::string config = stopping_config(scratch, "pipeline: 2");
  const std::string line = std::string(GANTRY_MPIRUN) + " -n 2 " +
                           train_line(scratch, config, "run", "--set train.steps=1 --set comm.heartbeat_seconds=0.1") +
                           " --sample ab";
  const Outcome full = run_program(line);
  ASSERT_EQ(full.exit_code, 0) << full.err;
  run_program("rm -r " + (scratch / "run"));
  const int forward = kMicrobatches + 5;
  const Outcome stopped =
      run_program(fmt::format("GANTRY_TEST_HEAR='1 {}' ", forward) + stop_at(scratch, 0, forward) + line);
  EXPECT_EQ(stopped.exit_code, 0) << stopped.err;
  EXPECT_FALSE(sample_of(stopped.out).empty()) << stopped.out;
  EXPECT_LT(sample_of(stopped.out).size(), sample_of(full.out).size()) << stopped.out << full.out;
}

TEST(Stop, UnderMpirunToo) {
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

// A batch system signals every process. Here only one process is signalled.
TEST(Stop, OneRankThatIsSignalledStopsTheJob) {
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
