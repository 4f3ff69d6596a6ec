// `gantry launch` on this host, by mpirun and without: shell programs as ranks. $R is the rank.
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>
#include <thread>
#include <unistd.h>

#include "background.h"
#include "gantry/core/error.h"

namespace gantry::testing {
namespace {

std::string launch(const std::string& flags, const std::string& script) {
  return fmt::format("{} launch {} -- sh -c 'R=${{OMPI_COMM_WORLD_RANK:-$GANTRY_RANK}}; {}'", gantry_program(), flags,
                     script);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// Processes with this word on their command line.
int processes_with(const std::string& mark) {
  int found = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (std::isdigit(static_cast<unsigned char>(name[0])) &&
        read_file(entry.path() / "cmdline").find(mark) != std::string::npos)
      ++found;
  }
  return found;
}

// A word that only this test's processes have: a number of seconds to sleep.
std::string own_mark(int number) { return fmt::format("{}.{}", 100000 + ::getpid() % 100000, number); }

bool wait_until_gone(const std::string& mark) {
  for (int i = 0; i < 300; ++i) {
    if (processes_with(mark) == 0) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return false;
}

TEST(Launch, LinesAreWholeAndCarryTheirRank) {
  const ScratchFolder scratch;
  const std::string script =
      "i=0; while [ $i -lt 300 ]; do printf \"%s begins \" $R; printf \"%0120d ends\\n\" $i; "
      "i=$((i+1)); done; printf \"no newline\"; printf complaint >&2";
  const Outcome run = run_program(launch("-n 3 --log-dir " + (scratch / "logs"), script));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const auto lines = lines_of(run.out);
  EXPECT_EQ(lines.size(), 3u * 301);
  for (const auto& line : lines) {
    const std::string rank = line.substr(1, 1);
    const bool whole =
        line == "[" + rank + "] no newline" ||
        (line.starts_with("[" + rank + "] " + rank + " begins 0") && line.ends_with(" ends") && line.size() == 138);
    EXPECT_TRUE(whole) << line;
  }
  auto complaints = lines_of(run.err);
  std::sort(complaints.begin(), complaints.end());
  EXPECT_EQ(complaints, (std::vector<std::string>{"[0] complaint", "[1] complaint", "[2] complaint"}));
  for (int rank = 0; rank < 3; ++rank)
    EXPECT_EQ(lines_of(read_file(scratch / fmt::format("logs/start-0/rank-{}.log", rank))).size(), 302u);
  EXPECT_NE(read_file(scratch / "logs/start-0/processes").find("rank 2 on "), std::string::npos);
}

TEST(Launch, ArgumentsArriveAsTheyAre) {
  const Outcome run = run_program(gantry_program() + " launch -n 1 -- printf '%s|' : 'a b' '' '-n' '\"' --help");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.out, "[0] :|a b||-n|\"|--help|\n");
}

struct Failing {
  const char* script;
  int exit_code;
  const char* said;
};

TEST(Launch, TheFirstFailingRankSaysHowItEnds) {
  const Failing all[] = {
      {"[ $R = 1 ] && exit 3; exec sleep 60", 3, "rank 1 ended with exit code 3"},
      {"[ $R = 2 ] && kill -9 $$; exec sleep 60", 7, "rank 2 was killed by SIGKILL"},
      {"[ $R = 0 ] && kill -SEGV $$; exec sleep 60", 7, "rank 0 was killed by SIGSEGV"},
      {"[ $R = 1 ] && exit 4; trap \"exit 5\" TERM; sleep 60 & wait", 4, "rank 1 ended with exit code 4"},
      {"exit 75", 75, ""},
      {"kill -STOP $$", 7, "was suspended by SIGSTOP and did not continue"},
      {"[ $R = 1 ] && kill -STOP $PPID; sleep 60", 7, "launch: rank 1 sends no heartbeats"},
      // Wait until all ranks have started, because mpirun reports a failure during the start itself.
      {"touch $TMPDIR/is_here.$R; [ $R = 1 ] && "
       "until [ -e $TMPDIR/is_here.0 ] && [ -e $TMPDIR/is_here.2 ]; do sleep 0.05; done && "
       "kill -KILL $(cut -d\" \" -f4 /proc/$PPID/stat); sleep 60",
       7, "was killed by SIGKILL"},
  };
  for (const std::string backend : {"mpi", "tcp"})
    for (const auto& [script, exit_code, said] : all) {
      const ScratchFolder scratch;
      const Outcome run = run_program(
          "TMPDIR=" + scratch.path() + " " + launch("-n 3 --stopped-seconds 1 --backend " + backend, script), 40);
      EXPECT_EQ(run.exit_code, exit_code) << script << "\n" << run.err;
      EXPECT_NE(run.err.find(said), std::string::npos) << script << "\n" << run.err;
      EXPECT_EQ(lines_of(run.err).size(), *said == '\0' ? 0u : 1u) << script << "\n" << run.err;
      for (const auto& left : std::filesystem::recursive_directory_iterator(scratch.path()))
        EXPECT_FALSE(left.path().filename().string().starts_with("pid.")) << script << " leaves " << left.path();
    }
}

TEST(Launch, WithoutMpiItNeedsNoMpirun) {
  const Outcome run = run_program("PATH=/none " + gantry_program() +
                                  " launch -n 3 --backend tcp -- /bin/sh -c 'echo $GANTRY_RANK of $GANTRY_RANKS'");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  auto lines = lines_of(run.out);
  std::sort(lines.begin(), lines.end());
  EXPECT_EQ(lines, (std::vector<std::string>{"[0] 0 of 3", "[1] 1 of 3", "[2] 2 of 3"}));
}

// A rank has two sockets of the launch.
TEST(Launch, TheLimitOfOpenFilesIsRaisedOrNamed) {
  const std::string launch = gantry_program() + " launch --backend tcp -n 12 -- true";
  const Outcome raised = run_program("ulimit -Sn 70; " + launch);
  EXPECT_EQ(raised.exit_code, 0) << raised.err;
  const Outcome named = run_program("ulimit -n 70; " + launch);
  EXPECT_EQ(named.exit_code, ResourceError::kExitCode);
  EXPECT_EQ(
      named.err,
      "error: gantry launch: 12 ranks need 88 open files, and the limit is 70; expected a higher limit; raise it: "
      "ulimit -n 88\n");
}

// A stand-in for ssh: called with a host and a command, it runs the command here.
TEST(Launch, RanksOfOtherHostsGetTheirVariablesOverStdin) {
  const ScratchFolder scratch;
  const std::string shell = scratch / "shell";
  std::ofstream(shell) << "#!/bin/sh\necho \"$1\" >>" << (scratch / "hosts")
                       << "\nexec env -i PATH=\"$PATH\" sh -c \"$2\"\n";
  std::filesystem::permissions(shell, std::filesystem::perms::owner_all);
  const Outcome run =
      run_program("MINE=\"$(printf 'seen\\nOTHER=twice')\" GANTRY_REMOTE_SHELL=" + shell + " " +
                  launch("--backend tcp --hosts a:1,localhost:1,b:1 --interface lo -x MINE -x OTHER=too",
                         "echo $R $MINE $OTHER $GANTRY_RANKS"));
  EXPECT_EQ(run.exit_code, 0) << run.err;
  auto lines = lines_of(run.out);
  std::sort(lines.begin(), lines.end());
  EXPECT_EQ(lines, (std::vector<std::string>{"[0] 0 seen OTHER=twice too 3", "[1] 1 seen OTHER=twice too 3",
                                             "[2] 2 seen OTHER=twice too 3"}));
  auto hosts = lines_of(read_file(scratch / "hosts"));
  std::sort(hosts.begin(), hosts.end());
  EXPECT_EQ(hosts, (std::vector<std::string>{"a", "b"}));
}

TEST(Launch, ABriefStopIsNoHarm) {
  // The sleeps are the stops themselves: long enough for a beat to be missed, far below --stopped-seconds.
  const Outcome run = run_program(
      launch("-n 2 --stopped-seconds 20",
             "(until grep -q \"^State:.T\" /proc/$$/status; do sleep 0.05; done; sleep 0.5; kill -CONT $$) & "
             "kill -STOP $$; wait"),
      60);
  EXPECT_EQ(run.exit_code, 0) << run.err;
  const Outcome supervisor =
      run_program(launch("-n 2 --stopped-seconds 20", "kill -STOP $PPID; sleep 1.5; kill -CONT $PPID"), 60);
  EXPECT_EQ(supervisor.exit_code, 0) << supervisor.err;
}

// Ranks of one host meet in shared memory: they open no port.
TEST(Launch, RanksOfOneHostListenOnNoNetwork) {
  const Outcome run = run_program(launch("-n 1", "echo $OMPI_MCA_btl"));
  EXPECT_EQ(run.out, "[0] vader,self\n") << run.err;
}

TEST(Launch, NothingOutlivesItWhateverEndsIt) {
  // Processes that ranks leave running and that ignore signals: the launch, two shells, four sleeps.
  const std::string stubborn = "trap \"\" TERM INT HUP USR1; sleep MARK & sleep MARK";
  const auto script = [&](const std::string& mark) {
    std::string text = stubborn;
    for (auto at = text.find("MARK"); at != std::string::npos; at = text.find("MARK")) text.replace(at, 4, mark);
    return text;
  };
  for (const std::string backend : {"mpi", "tcp"})
    for (const int number : {SIGKILL, SIGTERM}) {
      const std::string mark = own_mark(number);
      Background run(launch("-n 2 --backend " + backend, script(mark)));
      ASSERT_TRUE(run.wait_until([&] { return processes_with(mark) == 7; })) << run.err();
      run.signal(number);
      if (number == SIGTERM) {
        ASSERT_TRUE(
            run.wait_until([&] { return run.err().find("send it again to end them at once") != std::string::npos; }));
        run.signal(number);
      }
      EXPECT_EQ(run.wait(30).exit_code, 128 + number) << run.err();
      EXPECT_TRUE(wait_until_gone(mark)) << number;
    }
  const std::string mark = own_mark(0);
  const Outcome left = run_program(launch("-n 2", "sleep " + mark + " >/dev/null 2>&1 & exit 0"));
  EXPECT_EQ(left.exit_code, 0) << left.err;
  EXPECT_EQ(processes_with(mark), 0);
}

TEST(Launch, AStopIsAskedForOnceAndPolitely) {
  const std::string script = "trap \"echo saved; exit 75\" USR1; echo ready; while true; do sleep 0.1; done";
  for (const int number : {SIGTERM, SIGINT}) {
    const ScratchFolder scratch;
    Background run(launch("-n 2 --log-dir " + (scratch / "l"), script));
    ASSERT_TRUE(run.wait_until([&] {
      return !read_file(scratch / "l/start-0/rank-0.log").empty() &&
             !read_file(scratch / "l/start-0/rank-1.log").empty();
    }));
    run.signal(number);
    const Outcome stopped = run.wait(30);
    EXPECT_EQ(stopped.exit_code, 75) << stopped.err;
    EXPECT_NE(stopped.out.find("[0] saved"), std::string::npos) << stopped.out;
    EXPECT_NE(stopped.out.find("[1] saved"), std::string::npos) << stopped.out;
  }
}

TEST(Launch, StartsAgainUntilItIsDone) {
  const ScratchFolder scratch;
  const std::string own = "--checkpoints " + scratch.path();
  const Outcome third = run_program(launch("-n 2 --restarts 3 " + own,
                                           "echo start $GANTRY_RESTART; [ $GANTRY_RESTART -lt 2 ] && "
                                           "exit $((6 + GANTRY_RESTART)); exit 0"));
  EXPECT_EQ(third.exit_code, 0) << third.err;
  EXPECT_NE(third.out.find("start 2"), std::string::npos) << third.out;
  EXPECT_NE(third.err.find("starting again in 2 s (2 of 3)"), std::string::npos) << third.err;
  const Outcome same = run_program(launch("-n 2 --restarts 3 " + own, "[ $R = 1 ] && exit 6; sleep 60"));
  EXPECT_EQ(same.exit_code, 6) << same.err;
  EXPECT_NE(same.err.find("the same failure twice"), std::string::npos) << same.err;
  const Outcome usage = run_program(launch("-n 1 --restarts 3 " + own, "exit 3"));
  EXPECT_EQ(usage.exit_code, 3) << usage.err;
  EXPECT_NE(usage.err.find("no restart: the same failure would follow (exit code 3)"), std::string::npos) << usage.err;
  const Outcome blind = run_program(launch("-n 1 --restarts 3", "exit 7"));
  EXPECT_EQ(blind.exit_code, 7) << blind.err;
  EXPECT_NE(blind.err.find("no restart: without checkpoints"), std::string::npos) << blind.err;
}

TEST(Launch, WhatItCannotDoIsOneLine) {
  const ScratchFolder scratch;
  struct Wrong {
    std::string command;
    int exit_code;
    const char* said;
  };
  const std::string gantry = gantry_program();
  const Wrong all[] = {
      {gantry + " launch -- true", 2, "gantry launch -n 4 -- true"},
      {gantry + " launch -n 0 -- true", 2, "gantry launch"},
      {gantry + " launch -n 2", 2, "program is required"},
      {gantry + " launch -n 5 --hosts a:2,b:2 -- true", 2, "5 ranks, but the hosts have slots for 4"},
      {gantry + " launch --hosts a:2,a -- true", 2, "listed twice"},
      {gantry + " launch --hosts a --hostfile b -- true", 2, "excludes"},
      {gantry + " launch --hostfile " + (scratch / "none") + " -- true", 4, "the host file cannot be read"},
      {gantry + " launch -n 1 --interface nope0 -- true", 2, "--interface nope0"},
      {gantry + " launch -n 1 --log-dir /proc/none -- true", 6, "--log-dir"},
      {gantry + " launch --nnodes 2 --nproc_per_node 4 -- true", 2, "gantry launch --hosts HOST_A:4,HOST_B:4 -- true"},
      {"OMPI_COMM_WORLD_RANK=0 " + gantry + " launch -n 2 -- true", 2, "this process is already a rank"},
      {"GANTRY_RANK=0 " + gantry + " launch -n 2 -- true", 2, "this process is already a rank of another launch"},
      {gantry + " launch-ranks x y", 2, "this command is only for `gantry launch`"},
      {"PATH=/none " + gantry + " launch -n 2 -- true", 2, "there is no mpirun on PATH"},
      {gantry + " launch-rank", 2, "this command is only for `gantry launch`"},
      {gantry + " launch -n 2 -- /none/such", 2, "launch: rank"},
      {gantry + " launch --hosts no-host.invalid:2 --interface lo -- true", 7, "launch: not all ranks began"},
      {gantry + " launch --hosts no-host.invalid:2 -- true", 2, "--interface is not set"},
      {"SLURM_JOB_ID=7 SLURM_JOB_NUM_NODES=2 " + gantry + " launch -n 2 -- true", 2, "--interface is not set"},
  };
  for (const auto& [command, exit_code, said] : all) {
    const Outcome run = run_program(command, 60);
    EXPECT_EQ(run.exit_code, exit_code) << command << "\n" << run.err;
    EXPECT_NE(run.err.find(said), std::string::npos) << command << "\n" << run.err;
  }
}

TEST(Launch, OtherLaunchersSpelling) {
  for (const char* flag : {"--nproc-per-node 2", "--nproc_per_node=2", "--num-gpus 2", "--num_gpus 2", "--ranks 2"}) {
    const Outcome run = run_program(launch(flag, "echo $OMPI_COMM_WORLD_SIZE"));
    EXPECT_EQ(run.exit_code, 0) << run.err;
    EXPECT_TRUE(run.out == "[0] 2\n[1] 2\n" || run.out == "[1] 2\n[0] 2\n") << flag << "\n" << run.out;
  }
}

}  // namespace
}  // namespace gantry::testing
