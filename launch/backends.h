// Which backend a job runs on, and the one place that knows which of them this build has.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "gantry/comm/world.h"
#include "gantry/tensors/exceptions.h"

namespace gantry {

// True where a launcher of MPI's (mpirun, srun with PMI), which this build has, started this process as one of several
// or alone.
bool under_mpirun();
// True there too, and where something else started this process as a rank.
bool under_launcher();
// The launcher's count of ranks; 1 without a launcher.
int launched_ranks();

std::vector<std::string> available_backends();  // "local", "tcp", "mpi", "nccl", "ipc"
bool has_backend(const std::string& name);

// One of them for a configured "auto | local | mpi | tcp | nccl | ipc": "auto" takes nccl where this build has it and
// this process sees CUDA devices, else what starts the ranks. ConfigError for one that this build has not.
std::string choose_backend(const std::string& configured);
// The starter of the ranks: "mpi" under mpirun, "tcp" if they are processes without MPI, else "local". nccl uses any
// of them; ipc is for processes, on mpi.
std::string choose_base_backend(const std::string& backend);
// The ranks of this configuration are processes, and not threads of one.
bool ranks_are_processes(const CommConfig& config);
bool has_cuda_devices();  // false in a build without nccl

// What launch() does on each. `describe_rank` names ranks in messages.
int launch_local(const Config& config, const Mesh& mesh, const std::function<void(World&)>& body);
// Sets what NCCL and CUDA read of this process's environment, in a build with NCCL: before anything asks for devices,
// and before ranks start, since no thread may read it meanwhile. `ranks`: of the job.
void prepare_nccl(int ranks);
// Runs the body over NCCL, on a rank that `base` carries messages for.
void run_on_nccl(World& base, const std::function<void(World&)>& body);
// The same with the one CUDA device that all ranks share, on a rank that launch_mpi has started.
void run_on_ipc(World& base, const std::function<void(World&)>& body);

// launch_local() that returns the failure instead of printing it, unless a rank is stuck: the process then ends.
std::optional<Failure> run_local(const Config& config, const Mesh& mesh, const std::function<void(World&)>& body);

// Runs the body of a rank with a world whose operations go to the rank's flight recorder, and notes how it ends; with
// `world` itself where the job is not recorded.
void run_recorded(World& world, const std::function<void(World&)>& body);

// Sets this thread's intra-op threads: comm.threads_per_rank, or `cores`, the rank's share of those that its process
// may use, unless OMP_NUM_THREADS is set.
void set_rank_threads(const CommConfig& config, int cores);

}  // namespace gantry
