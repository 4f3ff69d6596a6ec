// The keys of the run: checkpoints, output, profiles, communication, elastic jobs and libraries.
#include "gantry/core/config/keys/key_lists.h"
#include "gantry/core/config/keys/shared_conditions.h"

namespace gantry {
namespace {

bool may_have_processes(const Config& c) { return c.comm.backend != "local"; }
const KeyContext kSaving = {"checkpoint.path", saves,
                            [](const Config&) { return std::string("without checkpoint.path"); },
                            "set checkpoint.path, or remove the key"};
const KeyContext kKeepingBest = {
    "checkpoint.path and evaluation.path", [](const Config& c) { return saves(c) && !c.evaluation.path.empty(); },
    [](const Config& c) { return std::string(saves(c) ? "without evaluation.path" : "without checkpoint.path"); },
    "set both paths, or remove the key"};
const KeyContext kResuming = {"checkpoint.resume auto or a PATH",
                              [](const Config& c) { return c.checkpoint.resume != "none"; },
                              [](const Config&) { return std::string("with checkpoint.resume none"); },
                              "set checkpoint.resume, or remove the key"};
const KeyContext kProcesses = {"a comm.backend other than local", may_have_processes,
                               [](const Config&) { return std::string("with backend local"); }};

}  // namespace

std::vector<ConfigKey> run_keys() {
  return {
      {"checkpoint.path", "",
       "directory of the run's checkpoints; without it none are saved ([docs/checkpoints.md](checkpoints.md))"},
      {"checkpoint.every", "500",
       "number of steps between checkpoints. The last step is always saved; 0: only the last step", &kSaving},
      {"checkpoint.keep", "0", "number of checkpoints to keep; older ones are deleted. 0: all", &kSaving},
      {"checkpoint.keep_best", "false",
       "true: evaluated steps are saved too, and the checkpoint with the lowest evaluation loss is kept in addition to "
       "those of `keep`",
       &kKeepingBest},
      {"checkpoint.load", "",
       "checkpoint of the same model whose weights a new run starts from, without optimizer state and data position. A "
       "run that resumes does not read it"},
      {"checkpoint.async", "false", "true: training continues while a checkpoint is written", &kSaving},
      {"checkpoint.resume", "none",
       "checkpoint to resume from: `none`, `auto` (the newest one in `path`, or a new run if there is none), or the "
       "path of a checkpoint"},
      {"checkpoint.allow_changes", "false",
       "true: the run resumes although samples will be skipped or repeated, because the data, their order or the "
       "sequence length changed",
       &kResuming},

      {"output", "",
       "directory for metrics.jsonl, the resolved config.yaml, the report, traces and `recorder/` "
       "([docs/monitoring.md](monitoring.md))"},

      {"profile.wait", "0",
       "number of steps before each cycle that are not profiled ([docs/monitoring.md](monitoring.md#profiles))"},
      {"profile.warmup", "0", "number of steps per cycle that are profiled, but not kept"},
      {"profile.active", "1", "number of steps per cycle that are profiled and kept"},
      {"profile.repeat", "1", "number of cycles; 0: until the end of the run"},

      {"comm.backend", "auto",
       "communication backend ([docs/gpu.md](gpu.md#choose-the-backend)). `local`: threads of one process, on the CPU. "
       "`mpi`: MPI processes, on the CPU. `tcp`: processes without MPI, on the CPU. `nccl`: one GPU per rank. `ipc`: "
       "MPI processes of one host that share a GPU ([docs/gpu.md](gpu.md#ranks-that-share-a-device)). auto: `nccl` "
       "with CUDA devices, else `mpi` under mpirun, `tcp` under other launchers, else `local`"},
      {"comm.timeout_seconds", "60",
       "maximum time in seconds that a rank waits for other ranks; a longer wait ends the job (exit code 7)"},
      {"comm.threads_per_rank", "auto",
       "number of threads for the operators of a rank; auto: the rank's share of the cores that its process may use "
       "(cpusets, CPU quotas), unless `OMP_NUM_THREADS` is set"},
      {"comm.heartbeat_seconds", "1",
       "time in seconds between the heartbeats of a rank "
       "([docs/troubleshooting.md](troubleshooting.md#exit-code-7-a-rank-was-lost)); 0: no heartbeats",
       &kProcesses},
      {"comm.lost_after_seconds", "15",
       "time in seconds without a heartbeat after which a rank counts as lost and the job ends (exit code 7), at least "
       "2 * `comm.heartbeat_seconds`. A warning names a rank for which others have waited this long"},
      {"comm.interface", "",
       "network interface or address at which rank 0 listens for heartbeats. Default: loopback on one host. Required "
       "on several hosts, unless `gantry launch` starts the ranks",
       &kProcesses},
      {"comm.registered_buffers", "false",
       "true: the gradients of ZeRO 0 and 1 are in memory that NCCL allocates and registers, which saves copies "
       "([docs/gpu.md](gpu.md#registered-buffers))",
       &kDevices},
      {"comm.sums_by_rank", "false",
       "true: reductions over NCCL add in rank order too, with results that are bitwise identical to those of the "
       "other backends. This needs more messages ([docs/gpu.md](gpu.md#reductions-in-rank-order))",
       &kDevices},
      {"comm.recorder", "1024",
       "number of operations that each rank records for `gantry doctor DIR`; 0: none "
       "([docs/troubleshooting.md](troubleshooting.md#find-out-which-rank-hangs))"},

      {"elastic.min_replicas", "1",
       "number of data-parallel replicas below which the loss of a rank ends the job (exit code 7). The section makes "
       "the job elastic: after the loss of a rank, it continues with the remaining replicas "
       "([docs/clusters.md](clusters.md#continue-after-the-loss-of-a-rank)). It requires `gantry launch --backend "
       "tcp`"},
      {"elastic.max_replicas", "auto",
       "maximum number of replicas, at least `elastic.min_replicas`; auto: the replicas with which the job starts"},
      {"elastic.rejoin", "true",
       "true: `gantry launch` starts the lost ranks again, and they join at the end of a step"},
      {"elastic.heartbeat", "1",
       "time in seconds between the heartbeats of a rank; a rank without a heartbeat for five of them is lost"},

      {"libraries", "[]", "list of shared libraries that register policies and model families"},
  };
}

}  // namespace gantry
