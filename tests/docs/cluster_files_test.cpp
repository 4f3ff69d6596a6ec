// The files of examples/cluster parse, and use existing commands and flags of Gantry.
#include <csignal>
#include <filesystem>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <regex>
#include <set>
#include <unistd.h>
#include <yaml-cpp/yaml.h>

#include "background.h"

namespace gantry::testing {
namespace {

const std::string kFolder = std::string(GANTRY_SOURCE_DIR) + "/examples/cluster";

std::string executable(const ScratchFolder& scratch, const std::string& name, const std::string& script) {
  const std::string path = scratch.write(name, "#!/bin/sh\n" + script + "\n");
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  return path;
}

// Runs slurm.sh with a `gantry` and an `scontrol` that only record their arguments.
std::string slurm_line(const ScratchFolder& scratch, const std::string& gantry_script,
                       const std::string& arguments = "c.yaml ib0", int nodes = 2) {
  executable(scratch, "scontrol", "echo scontrol $* >>" + (scratch / "asked"));
  return fmt::format(
      "env PATH={}:$PATH GANTRY={} SLURM_NTASKS=8 SLURM_JOB_NUM_NODES={} SLURM_JOB_ID=12 bash {}/slurm.sh {}",
      scratch.path(), executable(scratch, "gantry", "echo gantry $* >>" + (scratch / "asked") + "\n" + gantry_script),
      nodes, kFolder, arguments);
}

TEST(ClusterFiles, TheSlurmScriptLaunchesTheAllocation) {
  const ScratchFolder scratch;
  EXPECT_EQ(run_program("bash -n " + kFolder + "/slurm.sh").exit_code, 0);
  const Outcome run = run_program(slurm_line(scratch, "exit 7"));
  EXPECT_EQ(run.exit_code, 7) << run.err;
  const std::string asked = read_file(scratch / "asked");
  EXPECT_EQ(asked.find("gantry launch -n 8 --interface ib0 --restarts 3 --log-dir logs/12 -- "), 0u) << asked;
  EXPECT_NE(asked.find("gantry train c.yaml --set checkpoint.resume=auto"), std::string::npos) << asked;
  EXPECT_EQ(asked.find("scontrol"), std::string::npos) << asked;
}

TEST(ClusterFiles, TheSlurmScriptKeepsTheLogsOfEachTimeItWasQueued) {
  const ScratchFolder scratch;
  const Outcome run = run_program("SLURM_RESTART_COUNT=2 " + slurm_line(scratch, "exit 0"));
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_NE(read_file(scratch / "asked").find(" --log-dir logs/12-2 -- "), std::string::npos);
}

TEST(ClusterFiles, TheSlurmScriptAsksForTheNetworkOfSeveralNodes) {
  const ScratchFolder scratch;
  const Outcome run = run_program(slurm_line(scratch, "exit 0", "c.yaml"));
  EXPECT_NE(run.exit_code, 0);
  EXPECT_NE(run.err.find("a job of several nodes needs its network"), std::string::npos) << run.err;
  EXPECT_EQ(run_program(slurm_line(scratch, "exit 0", "c.yaml", /*nodes=*/1)).exit_code, 0);
  EXPECT_EQ(read_file(scratch / "asked").find("gantry launch -n 8 --restarts 3"), 0u);
}

TEST(ClusterFiles, TheSlurmScriptHandsTheSignalOnAndQueuesTheJobAgain) {
  const ScratchFolder scratch;
  // The launch waits at a pipe that has no writer.
  Background run(slurm_line(scratch, fmt::format("mkfifo {0}/pipe; cat <>{0}/pipe & trap \"kill $!; exit 75\" USR1; "
                                                 "touch {0}/ready; wait",
                                                 scratch.path())));
  ASSERT_TRUE(run.wait_until([&] { return std::filesystem::exists(scratch / "ready"); })) << run.err();
  run.signal(SIGUSR1);
  EXPECT_EQ(run.wait(20).exit_code, 75) << run.err();
  EXPECT_NE(read_file(scratch / "asked").find("scontrol requeue 12"), std::string::npos);
}

TEST(ClusterFiles, TheMpiJobIsOne) {
  const YAML::Node job = YAML::LoadFile(kFolder + "/mpijob.yaml");
  EXPECT_EQ(job["apiVersion"].as<std::string>(), "kubeflow.org/v2beta1");
  EXPECT_EQ(job["kind"].as<std::string>(), "MPIJob");
  EXPECT_FALSE(job["metadata"]["name"].as<std::string>().empty());
  const YAML::Node spec = job["spec"];
  EXPECT_GT(spec["slotsPerWorker"].as<int>(), 0);
  EXPECT_EQ(spec["mpiReplicaSpecs"]["Launcher"]["replicas"].as<int>(), 1);
  EXPECT_GT(spec["mpiReplicaSpecs"]["Worker"]["replicas"].as<int>(), 0);
  for (const char* role : {"Launcher", "Worker"}) {
    const YAML::Node pod = spec["mpiReplicaSpecs"][role]["template"]["spec"];
    std::set<std::string> volumes;
    for (const auto& volume : pod["volumes"]) volumes.insert(volume["name"].as<std::string>());
    for (const auto& container : pod["containers"]) {
      EXPECT_FALSE(container["image"].as<std::string>().empty()) << role;
      for (const auto& mount : container["volumeMounts"])
        EXPECT_TRUE(volumes.contains(mount["name"].as<std::string>())) << role;
    }
  }
}

// A deleted job has time to save, because its workers end after their ranks.
TEST(ClusterFiles, TheMpiJobsWorkersOutliveTheirRanks) {
  const YAML::Node roles = YAML::LoadFile(kFolder + "/mpijob.yaml")["spec"]["mpiReplicaSpecs"];
  const auto grace = [&](const char* role) {
    return roles[role]["template"]["spec"]["terminationGracePeriodSeconds"].as<int>();
  };
  EXPECT_GE(grace("Worker"), grace("Launcher"));
  const YAML::Node command =
      roles["Worker"]["template"]["spec"]["containers"][0]["lifecycle"]["preStop"]["exec"]["command"];
  ASSERT_EQ(command.size(), 3u);
  // A daemon of a name that no other job on this machine has.
  std::string loop = command[2].as<std::string>();
  ASSERT_NE(loop.find(" orted "), std::string::npos) << loop;
  const std::string name = fmt::format("orted{}", getpid());
  loop.replace(loop.find("orted"), 5, name);
  // The daemon first reports that it runs. It ends in the sleep of the loop. A loop that does not see the
  // daemon ends too early.
  const ScratchFolder scratch;
  scratch.write("loop", loop);
  executable(scratch, name, "echo >up; read go <go; touch gone; echo >done");
  executable(scratch, "sleep", "[ -e gone ] || { echo >go; read done <done; }");
  const Outcome run = run_program(fmt::format("cd {}; mkfifo up go done; ./{} & read up <up; PATH=.:$PATH sh loop; "
                                              "[ -e gone ] || {{ echo too early; echo >go; read done <done; }}",
                                              scratch.path(), name),
                                  30);
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.out, "") << run.err;
}

TEST(ClusterFiles, TheMpiJobsFlagsAreThoseOfTheProgram) {
  const YAML::Node job = YAML::LoadFile(kFolder + "/mpijob.yaml");
  const YAML::Node words = job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]["command"];
  std::string command = words[1].as<std::string>();
  ASSERT_EQ(words[0].as<std::string>() + " " + command, "gantry launch");
  int flags = 0;
  for (std::size_t i = 2; i < words.size(); ++i) {
    const std::string word = words[i].as<std::string>();
    if (word == "--") command = words[i + 2].as<std::string>();
    if (!word.starts_with("--") || word == "--") continue;
    const std::string help = run_program(gantry_program() + " help " + command).out;
    EXPECT_TRUE(std::regex_search(help, std::regex("[ ,]" + word + "\\b"))) << command << " " << word;
    ++flags;
  }
  EXPECT_EQ(command, "train");
  EXPECT_GT(flags, 2);
}

}  // namespace
}  // namespace gantry::testing
