#include "gantry/launch/foreign_launcher.h"

#include <cstdlib>
#include <fstream>

#include "gantry/core/error.h"

namespace gantry {
namespace {

// Returns this process's command line, quoted for a shell.
std::string own_command() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string command;
  for (std::string word; std::getline(file, word, '\0');) {
    const bool plain = word.find_first_of(" \t\"'$*?;&|<>()\\") == std::string::npos && !word.empty();
    command += (command.empty() ? "" : " ") + (plain ? word : "'" + word + "'");
  }
  return command;
}

std::string launch_command(int ranks) { return "gantry launch -n " + std::to_string(ranks) + " -- " + own_command(); }

[[noreturn]] void refuse(const std::string& who, int copies, const std::string& remedy) {
  throw UsageError({"launch", who + " has started " + std::to_string(copies) + " copies of this program without MPI",
                    "one job, not " + std::to_string(copies),
                    "run " + remedy + " (or, for one separate job per copy, set comm.backend: local)"});
}

}  // namespace

int launcher_number(const char* variable) {
  const char* value = std::getenv(variable);
  return value && *value ? std::atoi(value) : -1;
}

void refuse_foreign_launcher() {
  if (const int copies = launcher_number("SLURM_STEP_NUM_TASKS"); copies > 1 && launcher_number("SLURM_PROCID") >= 0)
    refuse("srun", copies,
           "srun --mpi=pmix -n " + std::to_string(copies) + " " + own_command() + ", or within the allocation " +
               launch_command(copies));
  if (const int copies = launcher_number("WORLD_SIZE"); copies > 1 && launcher_number("RANK") >= 0)
    refuse("torchrun, or a launcher like it,", copies,
           launch_command(copies) + ", or set MASTER_ADDR and MASTER_PORT too");
}

void refuse_missing_launcher(const std::string& backend, int ranks) {
  if (ranks == 1) return;
  const std::string count = std::to_string(ranks);
  if (backend != "tcp")
    throw UsageError({"comm.backend: " + backend, "no launcher of MPI has started this program",
                      count + " ranks over MPI", "run " + launch_command(ranks)});
  throw UsageError({"comm.backend: tcp", "nothing has started this program as a rank", count + " ranks as processes",
                    "run gantry launch --backend tcp -n " + count + " -- " + own_command() +
                        ", or torchrun --no-python" + " --nproc-per-node " + count + " " + own_command() +
                        ", or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT for each process"});
}

bool speaks_for_all() {
  for (const char* variable : {"OMPI_COMM_WORLD_RANK", "GANTRY_RANK", "RANK", "PMIX_RANK", "SLURM_PROCID"})
    if (const int rank = launcher_number(variable); rank >= 0) return rank == 0;
  return true;
}

}  // namespace gantry
