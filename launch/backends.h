// The choice of a job's backend, and the list of the backends of this build.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "gantry/comm/world.h"
#include "gantry/tensors/exceptions.h"

namespace gantry {

// True if an MPI launcher (mpirun, or srun with PMI) started this process as one of several or alone, and
// this build has MPI.
bool under_mpirun();
// True under an MPI launcher, and if another launcher started this process as a rank.
bool under_launcher();
// Returns the launcher's number of ranks; 1 without a launcher.
int launched_ranks();

std::vector<std::string> available_backends();  // "local", "tcp", "mpi", "nccl", "ipc"
bool has_backend(const std::string& name);

// Returns one of the available backends for a configured "auto | local | mpi | tcp | nccl | ipc". "auto"
// selects nccl if this build has it and this process sees CUDA devices. Otherwise it selects the backend that
// starts the ranks. Throws ConfigError for a backend that this build does not have.
std::string choose_backend(const std::string& configured);
// Returns the backend that starts the ranks: "mpi" under mpirun, "tcp" for processes without MPI, otherwise
// "local". nccl can use any of them. ipc requires processes, on mpi.
std::string choose_base_backend(const std::string& backend);
// True if the ranks of this configuration are processes, false if they are threads of one process.
bool ranks_are_processes(const CommConfig& config);
bool has_cuda_devices();  // false in a build without nccl

// Implementation of launch() on the local backend. `describe_rank` names ranks in messages.
int launch_local(const Config& config, const Mesh& mesh, const std::function<void(World&)>& body);
// Sets the environment variables that NCCL and CUDA read, in a build with NCCL. Call it before any code uses
// a device and before ranks start, because no thread may read the environment meanwhile. `ranks`: number of
// ranks of the job.
void prepare_nccl(int ranks);
// Runs the body over NCCL, on a rank whose messages `base` carries.
void run_on_nccl(World& base, const std::function<void(World&)>& body);
// The same on the one CUDA device that all ranks share, on a rank that was started by MPI.
void run_on_ipc(World& base, const std::function<void(World&)>& body);

// The same as launch_local(), but returns the failure instead of printing it, unless a rank is stuck: then
// the process ends.
std::optional<Failure> run_local(const Config& config, const Mesh& mesh, const std::function<void(World&)>& body);

// Runs the body of a rank with a world whose operations are recorded by the rank's flight recorder, and
// records how the body ends. Without a recorder, runs it with `world` itself.
void run_recorded(World& world, const std::function<void(World&)>& body);

// Sets the number of intra-op threads of this thread: comm.threads_per_rank if set; otherwise `cores`, the
// rank's share of the cores that its process may use, unless OMP_NUM_THREADS is set.
void set_rank_threads(const CommConfig& config, int cores);

}  // namespace gantry
