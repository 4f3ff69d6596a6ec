// `gantry train` under `gantry launch`: killed ranks, restarts with bitwise identical results, and stops on request;
// its messages under other launchers.
#include <algorithm>
#include <csignal>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <regex>
#include <sstream>

#include "background.h"

namespace gantry::testing {
namespace {

constexpr int kSteps = 240;

std::string write_config(const ScratchFolder& scratch) {
  const std::string text = some_letters(3000, 23);
  return scratch.write(
      "train.yaml",
      fmt::format(
          "model: {{policy: gpt2, config: {{n_embd: 16, n_layer: 2, n_head: 2, vocab_size: 256, n_positions: 32, "
          "resid_pdrop: 0.1}}}}\nparallel: {{pipeline: 2}}\nschedule: {{microbatches: 2}}\ndata: {{format: text, path: "
          "\"{}\", sequence_length: 32, batch_size: 4}}\ntrain: {{steps: {}, log_every: 100}}\ncomm: "
          "{{threads_per_rank: 1, timeout_seconds: 20}}\n",
          scratch.write("text.txt", text), kSteps));
}

std::string train(const ScratchFolder& scratch, const std::string& config, const std::string& name,
                  const std::string& sets = "") {
  return fmt::format("{} train {} --set output={} --set checkpoint.path={}/c --set checkpoint.every=40 {}",
                     gantry_program(), config, scratch / name, scratch / name, sets);
}

// Returns the metrics up to the learning rate, which must not depend on interruptions.
std::string losses_of(const ScratchFolder& scratch, const std::string& name) {
  std::string losses;
  std::istringstream lines(read_file(scratch / (name + "/metrics.jsonl")));
  for (std::string line; std::getline(lines, line);) losses += line.substr(0, line.find(",\"lr\"")) + "\n";
  return losses;
}

long steps_of(const ScratchFolder& scratch, const std::string& name) {
  const std::string losses = losses_of(scratch, name);
  return std::count(losses.begin(), losses.end(), '\n');
}

pid_t process_of(const ScratchFolder& scratch, int start, int rank) {
  const std::string text = read_file(scratch / fmt::format("logs/start-{}/processes", start));
  std::smatch found;
  const bool known = std::regex_search(text, found, std::regex(fmt::format("rank {} on .*: process ([0-9]+)", rank)));
  return known ? std::stoi(found[1]) : 0;
}

TEST(LaunchTrain, KilledRanksAndRestartsLeaveNoTraceInTheBits) {
  const ScratchFolder scratch;
  const std::string config = write_config(scratch);
  ASSERT_EQ(run_program(train(scratch, config, "whole")).exit_code, 0);
  Background run(fmt::format("{} launch -n 2 --restarts 3 --log-dir {} -- {}", gantry_program(), scratch / "logs",
                             train(scratch, config, "killed")));
  for (const int start : {0, 1}) {
    const long after = 60 + 100 * start;
    ASSERT_TRUE(run.wait_until([&] {
      return process_of(scratch, start, 1) > 0 && steps_of(scratch, "killed") >= after;
    })) << run.err();
    ::kill(process_of(scratch, start, 1 - start), SIGKILL);
    ASSERT_TRUE(run.wait_until([&] { return process_of(scratch, start + 1, 1) > 0; })) << run.err();
  }
  const Outcome ended = run.wait();
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_NE(ended.out.find("[0] resuming from "), std::string::npos) << ended.out;
  EXPECT_NE(ended.err.find("rank 1 was killed by SIGKILL; failed after step "), std::string::npos) << ended.err;
  EXPECT_NE(ended.err.find("rank 0 was killed by SIGKILL"), std::string::npos) << ended.err;
  EXPECT_EQ(losses_of(scratch, "killed"), losses_of(scratch, "whole"));
  EXPECT_EQ(steps_of(scratch, "whole"), kSteps);
  for (int rank = 0; rank < 2; ++rank) {
    const std::string file = fmt::format("/c/step-{:06}/rank-{:05}.safetensors", kSteps, rank);
    EXPECT_FALSE(read_file(scratch / ("whole" + file)).empty());
    EXPECT_TRUE(read_file(scratch / ("whole" + file)) == read_file(scratch / ("killed" + file))) << file;
  }
  // A new run next to these checkpoints is rejected, because a restart would resume from them.
  const Outcome again =
      run_program(fmt::format("{} launch -n 2 --restarts 1 -- {}", gantry_program(), train(scratch, config, "killed")));
  EXPECT_EQ(again.exit_code, 5) << again.err;
  EXPECT_NE(again.err.find("step-000240: the checkpoint is from an earlier run"), std::string::npos) << again.err;
  // So is what lies beyond the step that a run goes back to, whoever starts `gantry train`.
  for (const char* wrapper : {"", "env "}) {
    const Outcome back = run_program(
        fmt::format("{} launch -n 2 --restarts 1 -- {}{}", gantry_program(), wrapper,
                    train(scratch, config, "killed", "--set checkpoint.resume=" + (scratch / "killed/c/step-000200"))));
    EXPECT_EQ(back.exit_code, 5) << back.err;
    EXPECT_NE(back.err.find("step-000240: the checkpoint is from an earlier run"), std::string::npos) << back.err;
  }
}

// Its rank 1 is killed after some steps. Returns what the launch says.
Outcome with_killed_rank(const ScratchFolder& scratch, const std::string& name, const std::string& sets) {
  Background run(fmt::format("{} launch -n 2 --log-dir {} -- {}", gantry_program(), scratch / "logs",
                             train(scratch, write_config(scratch), name, "--set train.steps=100000 " + sets)));
  EXPECT_TRUE(run.wait_until([&] { return steps_of(scratch, name) >= 100; })) << run.err();
  ::kill(process_of(scratch, 0, 1), SIGKILL);
  return run.wait();
}

TEST(LaunchTrain, AKilledRankSaysHowTheJobGoesOn) {
  const ScratchFolder scratch;
  const Outcome bare = with_killed_rank(scratch, "bare", "--set checkpoint.every=100000");
  EXPECT_EQ(bare.exit_code, 7) << bare.err;
  EXPECT_NE(bare.err.find("launch: rank 1 was killed by SIGKILL; check its log and the memory of its host, then start "
                          "the job again"),
            std::string::npos)
      << bare.err;
  EXPECT_EQ((bare.out + bare.err).find("saved"), std::string::npos) << bare.out << bare.err;
  EXPECT_EQ((bare.out + bare.err).find("checkpoint"), std::string::npos) << bare.out << bare.err;
  const std::string page = read_file(scratch / "bare/report.html");
  const auto failure = page.find("\"failure\":\"");
  ASSERT_NE(failure, std::string::npos) << page.substr(0, 400);
  EXPECT_NE(page.find("rank 1", failure), std::string::npos) << page.substr(failure, 400);
  const Outcome saved = with_killed_rank(scratch, "saved", "");
  EXPECT_NE(saved.err.find(fmt::format("resume the job from {}/c/step-", scratch / "saved")), std::string::npos)
      << saved.err;
  EXPECT_NE(saved.err.find("with checkpoint.resume=auto, or use --restarts N"), std::string::npos) << saved.err;
}

TEST(LaunchTrain, AnErrorOfTheConfigurationHasNoRank) {
  const ScratchFolder scratch;
  const std::string line = fmt::format("{} train {} --set parallel.tensor=8 --set parallel.pipeline=1",
                                       gantry_program(), write_config(scratch));
  for (const std::string& run : {line, fmt::format("{} launch -n 8 -- {}", gantry_program(), line)}) {
    const Outcome wrong = run_program(run, 60);
    EXPECT_EQ(wrong.exit_code, 3) << wrong.err;
    EXPECT_EQ(wrong.err.find("(pp 0, dp 0"), std::string::npos) << wrong.err;
  }
}

TEST(LaunchTrain, SignalsEndItWithACheckpoint) {
  const ScratchFolder scratch;
  const std::string config = write_config(scratch);
  Background run(fmt::format("{} launch -n 2 --restarts 3 -- {}", gantry_program(),
                             train(scratch, config, "stopped", "--set train.steps=100000")));
  ASSERT_TRUE(run.wait_until([&] { return steps_of(scratch, "stopped") >= 20; })) << run.err();
  run.signal(SIGTERM);
  const Outcome ended = run.wait();
  EXPECT_EQ(ended.exit_code, 75) << ended.err;
  const std::string folder = fmt::format("stopped/c/step-{:06}/manifest.json", steps_of(scratch, "stopped"));
  EXPECT_FALSE(read_file(scratch / folder).empty()) << folder;
}

TEST(LaunchTrain, ARestartNeedsACheckpointPath) {
  const ScratchFolder scratch;
  const std::string bare = gantry_program() + " train " + write_config(scratch);
  const Outcome run =
      run_program(fmt::format("{} launch -n 2 --restarts 2 -- {} --set optimizer.lr=1.0e+30", gantry_program(), bare));
  EXPECT_EQ(run.exit_code, 8) << run.err;
  EXPECT_NE(run.err.find("no restart: without checkpoints"), std::string::npos) << run.err;
  const Outcome restarted = run_program("GANTRY_RESTART=1 " + bare);
  EXPECT_EQ(restarted.exit_code, 3) << restarted.err;
  EXPECT_NE(restarted.err.find("checkpoint.path: the key is missing, but this run was restarted"), std::string::npos)
      << restarted.err;
}

// A command's two copies as torchrun starts them on one host; prints each one's exit code.
std::string as_torchrun(const std::string& command, int port, const std::string& meanwhile = "") {
  return fmt::format(
      "for rank in 0 1; do RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 "
      "MASTER_PORT={} {} > /dev/null & copies=\"$copies $!\"; done; {} for copy in $copies; do wait $copy; echo $?; "
      "done",
      port, command, meanwhile);
}

// Two ends have the name of the socket where the copies of MASTER_PORT 3 meet: the first copy's, and the other's
// connection.
constexpr const char* kOtherHasCome =
    "while [ $(grep -c \"@gantry-$(id -u)-3-\" /proc/net/unix) -lt 2 ]; do sleep 0.1; done; ";

TEST(LaunchTrain, C15TorchrunsCopiesOnOneHostAreOneJob) {
  const ScratchFolder scratch;
  const std::string config = write_config(scratch);
  ASSERT_EQ(run_program(train(scratch, config, "plain")).exit_code, 0);
  const Outcome copies = run_program(as_torchrun(train(scratch, config, "copies"), 1));
  EXPECT_EQ(copies.out, "0\n0\n") << copies.err;
  EXPECT_EQ(losses_of(scratch, "copies"), losses_of(scratch, "plain"));
  const Outcome refused = run_program(as_torchrun(train(scratch, config, "x", "--set parallel.tensor=3"), 2));
  EXPECT_EQ(refused.out, "3\n3\n");
  EXPECT_EQ(std::count(refused.err.begin(), refused.err.end(), '\n'), 1) << refused.err;
  const Outcome killed =
      run_program(as_torchrun("exec " + train(scratch, config, "killed", "--set train.steps=100000"), 3,
                              "while [ ! -s " + (scratch / "killed/metrics.jsonl") + " ]; do sleep 0.1; done; " +
                                  kOtherHasCome + "kill -KILL ${copies% *};"));
  EXPECT_EQ(killed.out, "137\n7\n") << killed.err;
}

TEST(LaunchTrain, CopiesOfOtherLaunchersReceiveTheCommandToRun) {
  const ScratchFolder scratch;
  const std::string config = write_config(scratch), bare = gantry_program() + " train " + config;
  struct Foreign {
    const char* environment;
    const char* remedy;
  };
  const Foreign all[] = {
      {"RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=1 LOCAL_RANK=0 LAUNCHED=by-hand", "gantry launch -n 2 -- "},
      {"SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=4 SLURM_JOB_ID=7", "srun --mpi=pmix -n 4 "},
  };
  for (const auto& [environment, remedy] : all) {
    const Outcome run = run_program(fmt::format("{} {}", environment, bare));
    EXPECT_EQ(run.exit_code, 2) << run.err;
    EXPECT_NE(run.err.find(remedy + bare), std::string::npos) << run.err;
    EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
  }
  const Outcome silent = run_program("RANK=1 WORLD_SIZE=2 " + bare);
  EXPECT_EQ(silent.exit_code, 2);
  EXPECT_EQ(silent.err, "");
  // A single copy is a complete job. Several copies become separate jobs on request.
  const Outcome one = run_program("RANK=0 WORLD_SIZE=1 " + bare + " --set train.steps=1");
  EXPECT_EQ(one.exit_code, 0) << one.err;
  const Outcome own = run_program("RANK=1 WORLD_SIZE=2 " + bare + " --set train.steps=1 --set comm.backend=local");
  EXPECT_EQ(own.exit_code, 0) << own.err;
  const Outcome alone = run_program(bare + " --set comm.backend=tcp --set parallel.data=2");
  EXPECT_EQ(alone.exit_code, 2);
  EXPECT_NE(alone.err.find("nothing has started this program as a rank"), std::string::npos) << alone.err;
  EXPECT_NE(alone.err.find("gantry launch --backend tcp -n "), std::string::npos) << alone.err;
  const Outcome missing = run_program(bare + " --set comm.backend=mpi");
  EXPECT_EQ(missing.exit_code, 2) << missing.err;
  EXPECT_NE(missing.err.find("gantry launch -n 2 -- " + bare), std::string::npos) << missing.err;
}

}  // namespace
}  // namespace gantry::testing
