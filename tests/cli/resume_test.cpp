// Runs of `gantry train` that stop, on request or not, and go on: the numbers of a run that nothing disturbed.
#include <algorithm>
#include <csignal>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sstream>

#include "background.h"

namespace gantry::testing {
namespace {

constexpr int kSteps = 8, kStop = 3;

struct Case {
  const char* name;
  const char* sections;
};

// What a run keeps from step to step differs between them: moments, masters, loss scale, who holds what.
constexpr Case kCases[] = {
    {"one rank", "optimizer: {name: adamw, clip_grad_norm: 1.0}"},
    {"tp 2 pp 2", "parallel: {tensor: 2, pipeline: 2}\nschedule: {microbatches: 2}\nlr_schedule: {name: cosine}"},
    {"pp 2, 2 chunks", "parallel: {pipeline: 2}\nschedule: {name: interleaved_1f1b, microbatches: 2, chunks: 2}"},
    {"zero 1", "parallel: {data: 2, zero: 1, tensor: 2}\ncheckpoint: {async: true}"},
    {"bfloat16", "parallel: {data: 2, zero: 1}\nprecision: bfloat16\noptimizer: {name: sgd, momentum: 0.9}"},
    {"float16",
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

TEST(Resume, SameLayoutGoesOnToTheSameBits) {
  for (const auto& [name, sections] : kCases) {
    SCOPED_TRACE(name);
    const ScratchFolder scratch;
    const std::string config = write_config(scratch, sections);
    const Outcome whole = run_program(train_line(scratch, config, "whole"));
    ASSERT_EQ(whole.exit_code, 0) << whole.err;
    const Outcome saved =
        run_program(train_line(scratch, config, "parts", fmt::format("--set checkpoint.every={}", kStop)));
    ASSERT_EQ(saved.exit_code, 0) << saved.err;
    run_program("rm -r " + (scratch / "parts/c/step-000006") + " " + (scratch / "parts/c/step-000008"));
    const Outcome resumed = run_program(train_line(scratch, config, "parts", "--set checkpoint.resume=auto"));
    ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
    EXPECT_NE(resumed.out.find("at step 3"), std::string::npos) << resumed.out;
    const bool one = std::string(name) == "one rank";
    expect_same_end(scratch, "parts", "whole", kSteps, one ? 1 : 2);
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
