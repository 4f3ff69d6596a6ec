#include "mpi_job.h"

#include <climits>
#include <cstdio>
#include <cstdlib>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gantry/launch/backends.h"
#include "gantry/launch/launch.h"
#include "ranks.h"

namespace gantry::testing {
namespace {

// mpirun within mpirun works only without the outer one's environment.
std::string clean_environment() {
  std::string assignments = "env -i OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1";
  for (const char* name : {"PATH", "HOME", "LD_LIBRARY_PATH", "TMPDIR"})
    if (const char* value = std::getenv(name)) assignments += std::string(" ") + name + "='" + value + "'";
  return assignments;
}

}  // namespace

int JobOutcome::count(const std::string& text) const {
  int found = 0;
  for (std::size_t at = output.find(text); at != std::string::npos; at = output.find(text, at + 1)) ++found;
  return found;
}

JobOutcome run_job(int ranks, const std::string& name) {
  char self[PATH_MAX] = "";
  EXPECT_GT(::readlink("/proc/self/exe", self, sizeof(self) - 1), 0);
  const std::string command = clean_environment() + " timeout -k 5 60 mpirun --oversubscribe -n " +
                              std::to_string(ranks) + " '" + self +
                              "' --gtest_also_run_disabled_tests --gtest_filter=Job.DISABLED_" + name + " 2>&1";
  JobOutcome outcome;
  FILE* stream = ::popen(command.c_str(), "r");
  EXPECT_NE(stream, nullptr);
  char block[4096];
  while (const std::size_t n = std::fread(block, 1, sizeof(block), stream)) outcome.output.append(block, n);
  const int status = ::pclose(stream);
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

void run_job_rank(const CommConfig& comm, const std::function<void(World&, ProcessGroupMesh&)>& body,
                  const std::function<void()>& and_then) {
  Config config = layout_config({.tensor = launched_ranks()});
  config.comm = comm;
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
