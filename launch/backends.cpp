#include "gantry/launch/backends.h"

#include <algorithm>
#include <cstdlib>

#include "gantry/comm/observed_backend.h"
#include "gantry/core/error.h"
#include "gantry/diagnosis/flight_recorder.h"
#include "gantry/launch/process_job.h"
#include "gantry/launch/torchrun.h"

namespace gantry {
namespace {

const char* launcher_size() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS"})
    if (const char* value = std::getenv(name)) return value;
  // srun sets SLURM_* for every command. Its tasks are one MPI job only with PMIx.
  return std::getenv("PMIX_RANK") ? std::getenv("SLURM_STEP_NUM_TASKS") : nullptr;
}

// Copies that torchrun has started on one host run as the threads of one process, unless comm.backend is set
// otherwise.
std::string started_ranks() {
  if (launcher_size()) return "mpi";
  return find_job_start() && !torchrun_copies() ? "tcp" : "local";
}

}  // namespace

bool under_mpirun() { return launcher_size() && has_backend("mpi"); }

bool under_launcher() { return under_mpirun() || started_ranks() == "tcp"; }

int launched_ranks() {
  const char* size = launcher_size();
  return size ? std::max(1, std::atoi(size)) : find_job_start().value_or(JobStart{}).ranks;
}

std::vector<std::string> available_backends() {
  std::vector<std::string> names{"local", "tcp"};
#ifdef GANTRY_WITH_MPI
  names.push_back("mpi");
#endif
#ifdef GANTRY_WITH_NCCL
  names.push_back("nccl");
#endif
#ifdef GANTRY_WITH_IPC
  names.push_back("ipc");
#endif
  return names;
}

bool has_backend(const std::string& name) {
  const auto names = available_backends();
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string choose_base_backend(const std::string& backend) {
  if (backend == "ipc") return choose_backend("mpi");
  return backend == "nccl" ? choose_backend(started_ranks()) : backend;
}

bool ranks_are_processes(const CommConfig& config) {
  return choose_base_backend(choose_backend(config.backend)) != "local";
}

std::string choose_backend(const std::string& configured) {
  std::string wanted = configured;
  if (wanted == "auto") wanted = has_cuda_devices() ? "nccl" : started_ranks();
  if (has_backend(wanted)) return wanted;
  throw ConfigError({"comm.backend", "backend '" + wanted + "' is not part of this build",
                     "a backend that `gantry doctor` lists",
                     wanted == "nccl"  ? "run ./dev setup --nccl and build again, or use auto"
                     : wanted == "ipc" ? "run ./dev setup --cuda and ./dev build cuda, with Open MPI, or use auto"
                                       : "rebuild with it, or use local"});
}

#ifndef GANTRY_WITH_MPI
std::unique_ptr<StartedJob> start_mpi_job(const CommConfig&) {
  throw InternalError({"launch", "this build has no MPI", "", ""});
}

void run_on_ipc(World&, const std::function<void(World&)>&) {
  throw InternalError({"launch", "this build has no MPI", "", ""});
}
#endif

#ifndef GANTRY_WITH_NCCL
bool has_cuda_devices() { return false; }

void prepare_nccl(int) {}

void run_on_nccl(World&, const std::function<void(World&)>&) {
  throw InternalError({"launch", "this build has no NCCL", "", ""});
}
#endif

void run_recorded(World& world, const std::function<void(World&)>& body) {
  const auto ring = recorder::record_rank({.rank = world.rank(),
                                           .name = world.describe(),
                                           .backend = world.backend().name(),
                                           .timeout_seconds = world.config().comm.timeout_seconds});
  if (!ring) return body(world);
  ObservedBackend backend(world.backend(), ring);
  World recorded_world(backend, world.config(), world.mesh());
  try {
    body(recorded_world);
  } catch (...) {
    ring->ended(describe_exception(std::current_exception()).line);
    throw;
  }
  ring->ended("");
}

void set_rank_threads(const CommConfig& config, int cores) {
  if (config.threads_per_rank > 0)
    at::set_num_threads(config.threads_per_rank);
  else if (!std::getenv("OMP_NUM_THREADS"))
    at::set_num_threads(std::max(1, cores));
}

}  // namespace gantry
