// Random faults of one rank, from a seed, with ranks as threads, over MPI and over TCP. Every job must end in
// time, name the rank, return the documented exit code, and leave no processes or files. GANTRY_LONG=1 runs
// 200 cases.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "program.h"

namespace gantry::testing {
namespace {

namespace fs = std::filesystem;

constexpr int kTimeout = 3;  // comm.timeout_seconds of the jobs

const std::string kTrainer = std::string(GANTRY_BUILD_DIR) + "/tests/faulty_trainer";

struct Kind {
  const char* name;
  int processes;  // exit code under `gantry launch`
  // Exit code of one process with ranks as threads: 128 + N after signal N, as in a shell. -1: unknown, or
  // the process does not end.
  int local;
  bool local_names;  // the error names the rank if the ranks are threads
};

constexpr std::array kKinds = {
    Kind{"exception", 9, 9, true}, Kind{"memory", 6, 6, true},   Kind{"abort", 7, 134, true},
    Kind{"segv", 7, 139, true},    Kind{"kill", 7, 137, false},  Kind{"term", 7, 143, false},
    Kind{"stop", 7, -1, false},    Kind{"brief", 0, 0, false},   Kind{"slow", 0, 0, false},
    Kind{"exit", 7, -1, false},    Kind{"deadlock", 7, 7, true}, Kind{"leave", 7, 7, true},
};
constexpr std::array kMoments = {"start", "forward", "backward", "optimizer", "save", "end"};

struct Case {
  Kind kind = kKinds[0];
  std::string moment;
  std::string over = "mpi";
  int tensor = 1, pipeline = 1, rank = 0, step = 1;

  int ranks() const { return tensor * pipeline; }
  bool processes() const { return over != "local"; }
  int exit_code() const { return processes() ? kind.processes : kind.local; }
  std::string name() const {
    return fmt::format("{}@{}:{}:{} over {} with tp {} pp {}", kind.name, moment, rank, step, over, tensor, pipeline);
  }
};

Case random_case(std::mt19937& random) {
  const auto below = [&](std::size_t n) { return static_cast<int>(random() % n); };
  constexpr std::array<std::pair<int, int>, 4> kLayouts = {{{1, 2}, {2, 1}, {2, 2}, {1, 3}}};
  for (;;) {
    Case one;
    one.kind = kKinds[static_cast<std::size_t>(below(kKinds.size()))];
    one.moment = kMoments[static_cast<std::size_t>(below(kMoments.size()))];
    one.over = std::array{"local", "mpi", "tcp"}[static_cast<std::size_t>(below(3))];
    std::tie(one.tensor, one.pipeline) = kLayouts[static_cast<std::size_t>(below(kLayouts.size()))];
    one.rank = below(static_cast<std::size_t>(one.ranks()));
    one.step = one.moment == "start" ? 0 : 1 + below(4);
    if (one.exit_code() >= 0) return one;
  }
}

std::string job_line(const Case& one, const std::string& folder, const std::string& launch_flags = "") {
  const std::string trainer = fmt::format("{} {} 4 {} {} {}", kTrainer, folder, one.tensor, one.pipeline, kTimeout);
  const std::string fault = fmt::format("GANTRY_FAULT={}@{}:{}:{} ", one.kind.name, one.moment, one.rank, one.step);
  // No core dumps, because they take long. `exec`, because a shell prints messages of its own about signals.
  const std::string prologue = "ulimit -c 0; export " + fault + "; exec ";
  if (!one.processes()) return prologue + trainer;
  return fmt::format("{}{} launch --backend {} -n {} -x GANTRY_FAULT {} -- {}", prologue, gantry_program(), one.over,
                     one.ranks(), launch_flags, trainer);
}

// Directories of the other processes in /proc.
std::vector<fs::path> other_processes() {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (std::isdigit(static_cast<unsigned char>(name[0])) && name != std::to_string(::getpid()))
      found.push_back(entry.path());
  }
  return found;
}

// Files in shared memory that no process has mapped. This excludes files of other running jobs.
std::set<std::string> left_shared_memory() {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator("/dev/shm")) names.insert(entry.path().filename());
  if (names.empty()) return names;
  for (const auto& process : other_processes()) {
    const std::string maps = read_file(process / "maps");
    std::erase_if(names, [&](const std::string& name) { return maps.find("/dev/shm/" + name) != std::string::npos; });
  }
  return names;
}

// Processes that have `mark` on their command line.
std::string processes_with(const std::string& mark) {
  std::string found;
  for (const auto& process : other_processes())
    if (const std::string line = read_file(process / "cmdline"); line.find(mark) != std::string::npos)
      found += process.filename().string() + " " + std::string(line.c_str()) + "; ";
  return found;
}

void expect_nothing_left(const std::string& mark, const std::set<std::string>& before) {
  std::string processes, files;
  for (int i = 0; i < 60; ++i) {
    processes = processes_with(mark);
    files.clear();
    for (const auto& name : left_shared_memory())
      if (!before.contains(name)) files += name + " ";
    if (processes.empty() && files.empty()) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_EQ(processes, "");
  EXPECT_EQ(files, "");
}

std::string loss_in(const std::string& text) {
  const auto at = text.find("loss ");
  return at == std::string::npos ? "" : text.substr(at, text.find('\n', at) - at);
}

void expect_documented_end(const Case& one) {
  SCOPED_TRACE(one.name());
  const ScratchFolder scratch;
  const auto before = left_shared_memory();
  const Outcome run = run_program(job_line(one, scratch / "c"), 120);
  fmt::print("{}: exit code {}\n", one.name(), run.exit_code);
  std::fflush(stdout);
  EXPECT_EQ(run.exit_code, one.exit_code()) << run.out << run.err;
  if (one.exit_code() == 0) {
    EXPECT_NE(loss_in(run.out), "") << run.out << run.err;
  } else if (one.processes() || one.kind.local_names) {
    EXPECT_NE(run.err.find(fmt::format("rank {}", one.rank)), std::string::npos) << run.err;
  }
  expect_nothing_left(scratch.path(), before);
}

TEST(Faults, EveryJobEndsInTimeAndSaysWhichRankAndWhy) {
  const char* seed = std::getenv("GANTRY_SEED");
  const int cases = is_long_form() ? 200 : 8;
  std::mt19937 random(seed ? static_cast<unsigned>(std::atol(seed)) : 8u);
  for (int i = 0; i < cases; ++i) expect_documented_end(random_case(random));
}

// exit() on one thread destroys global objects while other ranks still use them. This is a race, so the test
// repeats it.
TEST(Faults, ARankOfThreadsThatLeavesIsNamedEveryTime) {
  const Kind leave =
      *std::find_if(kKinds.begin(), kKinds.end(), [](const Kind& kind) { return kind.name == std::string("leave"); });
  for (int i = 0; i < 12; ++i)
    expect_documented_end({.kind = leave,
                           .moment = i % 3 == 0   ? "start"
                                     : i % 3 == 1 ? "forward"
                                                  : "backward",
                           .over = "local",
                           .tensor = 2,
                           .pipeline = 2,
                           .rank = i % 4,
                           .step = i % 3 == 0 ? 0 : 1 + i % 2});
}

// A rank is killed, at every moment in the long form, else at two of them. The restarted job must end with
// the weights and the loss of an undisturbed job.
TEST(Faults, AfterARestartNothingDiffersToTheBit) {
  const Case undisturbed{.kind = kKinds[7], .moment = "never", .tensor = 2, .pipeline = 1, .rank = -1};
  const ScratchFolder scratch;
  const Outcome full = run_program(job_line(undisturbed, scratch / "whole"));
  ASSERT_EQ(full.exit_code, 0) << full.err;
  std::vector<std::string> moments = {"backward", "save"};
  if (is_long_form()) moments.assign(kMoments.begin(), kMoments.end());
  for (const std::string& moment : moments) {
    Case one = undisturbed;
    one.kind = kKinds[4];
    one.moment = moment;
    one.rank = 1;
    one.step = moment == "start" ? 0 : 3;
    SCOPED_TRACE(one.name());
    const std::string folder = scratch / moment;
    const Outcome run = run_program(job_line(one, folder, "--restarts 2 --checkpoints " + folder));
    EXPECT_EQ(run.exit_code, 0) << run.err;
    const char* after = moment == "start" ? "at an unknown step" : moment == "end" ? "after step 4" : "after step 2";
    EXPECT_NE(run.err.find(std::string(after) + "; starting again"), std::string::npos) << run.err;
    // A job that is killed at its end has no steps left after the restart, and so no loss to compare.
    if (moment != "end") EXPECT_EQ(loss_in(run.out), loss_in(full.out));
    for (int rank = 0; rank < 2; ++rank) {
      const std::string file = fmt::format("/step-000004/rank-{:05}.safetensors", rank);
      EXPECT_FALSE(read_file(folder + file).empty());
      EXPECT_TRUE(read_file(folder + file) == read_file(scratch / ("whole" + file))) << file;
    }
  }
}

}  // namespace
}  // namespace gantry::testing
