#include "mpi_job.h"

#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <map>
#include <set>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "gantry/core/error.h"
#include "gantry/launch/backends.h"
#include "gantry/launch/launch.h"
#include "ranks.h"

namespace gantry::testing {
namespace {

// A nested mpirun works only without the environment of the outer one.
std::string clean_environment() {
  std::string assignments = "env -i OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1";
  for (const char* name : {"PATH", "HOME", "LD_LIBRARY_PATH", "TMPDIR"})
    if (const char* value = std::getenv(name)) assignments += std::string(" ") + name + "='" + value + "'";
  return assignments;
}

std::string own_path() {
  char self[PATH_MAX] = "";
  EXPECT_GT(::readlink("/proc/self/exe", self, sizeof(self) - 1), 0);
  return self;
}

std::string job_flags(const std::string& name) {
  return "--gtest_also_run_disabled_tests --gtest_filter=Job.DISABLED_" + name;
}

JobOutcome read_job(const std::string& command) {
  JobOutcome outcome;
  FILE* stream = ::popen(command.c_str(), "r");
  EXPECT_NE(stream, nullptr);
  char block[4096];
  while (const std::size_t n = std::fread(block, 1, sizeof(block), stream)) outcome.output.append(block, n);
  const int status = ::pclose(stream);
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

// Waits until all ranks have ended. Kills suspended ranks once another rank has failed.
int wait_for_ranks(std::map<pid_t, int> ranks) {
  std::map<pid_t, int> codes;
  std::set<pid_t> stopped;
  int first = 0;
  const auto kill_stopped = [&] {
    for (const pid_t one : stopped)
      if (ranks.contains(one)) ::kill(one, SIGKILL);
  };
  while (!ranks.empty()) {
    int status = 0;
    const pid_t one = ::waitpid(-1, &status, WUNTRACED | WCONTINUED);
    if (one <= 0) break;
    if (WIFSTOPPED(status)) {
      stopped.insert(one);
      if (first != 0) kill_stopped();
      continue;
    }
    if (WIFCONTINUED(status)) {
      stopped.erase(one);
      continue;
    }
    ranks.erase(one);
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (code == 0 || stopped.contains(one)) continue;
    if (first == 0 || first == PeerError::kExitCode) first = code;
    kill_stopped();
  }
  return first;
}

// The ranks get the environment of torchrun. Like its agent, this function serves the store.
JobOutcome run_over_tcp(int ranks, const std::string& flags) {
  c10d::TCPStoreOptions options;
  options.port = 0;
  options.isServer = true;
  options.waitWorkers = false;
  const auto store = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  std::FILE* const output = std::tmpfile();
  std::map<pid_t, int> processes;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string command = fmt::format(
        "{} GANTRY_TEST_TCP=1 RANK={} WORLD_SIZE={} LOCAL_WORLD_SIZE={} MASTER_ADDR=127.0.0.1 "
        "MASTER_PORT={} TORCHELASTIC_USE_AGENT_STORE=True '{}' {}",
        clean_environment(), rank, ranks, ranks, store->getPort(), own_path(), flags);
    const pid_t process = ::fork();
    if (process == 0) {
      ::alarm(60);  // remains set after exec
      ::dup2(::fileno(output), STDOUT_FILENO);
      ::dup2(::fileno(output), STDERR_FILENO);
      ::execl("/bin/sh", "sh", "-c", ("exec " + command).c_str(), nullptr);
      ::_exit(127);
    }
    processes.emplace(process, rank);
  }
  JobOutcome outcome{wait_for_ranks(processes), ""};
  if (outcome.exit_code == 128 + SIGALRM) outcome.exit_code = 124;
  char block[4096];
  std::rewind(output);
  while (const std::size_t n = std::fread(block, 1, sizeof(block), output)) outcome.output.append(block, n);
  std::fclose(output);
  return outcome;
}

}  // namespace

bool jobs_are_over_tcp() { return std::getenv("GANTRY_TEST_TCP") != nullptr; }

int JobOutcome::count(const std::string& text) const {
  int found = 0;
  for (std::size_t at = output.find(text); at != std::string::npos; at = output.find(text, at + 1)) ++found;
  return found;
}

JobOutcome run_tests_over_tcp(int ranks, const std::string& filter) {
  return run_over_tcp(ranks, "--gtest_also_run_disabled_tests --gtest_filter='" + filter + "'");
}

JobOutcome run_job(int ranks, const std::string& name) {
  if (jobs_are_over_tcp()) return run_over_tcp(ranks, job_flags(name));
  return read_job(fmt::format("{} timeout -k 5 60 mpirun --oversubscribe -n {} '{}' {} 2>&1", clean_environment(),
                              ranks, own_path(), job_flags(name)));
}

Config job_config(const Layout& layout) {
  Config config = layout_config(layout);
  if (jobs_are_over_tcp()) config.comm.backend = "tcp";
  return config;
}

void run_job_rank(const CommConfig& comm, const std::function<void(World&, ProcessGroupMesh&)>& body,
                  const std::function<void()>& and_then) {
  Config config = job_config({.tensor = launched_ranks()});
  const std::string backend = config.comm.backend;
  config.comm = comm;
  config.comm.backend = backend;
  const int code = launch(config, [&](World& world) {
    ProcessGroupMesh mesh(world);
    body(world, mesh);
  });
  and_then();
  std::exit(code);
}

void stay_away() {
  for (;;) ::pause();
}

}  // namespace gantry::testing
