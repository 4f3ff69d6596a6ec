// Jobs whose ranks are processes, whether MPI or sockets carry their messages.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gantry/comm/control/control_plane.h"
#include "gantry/comm/processes/process_backend.h"
#include "gantry/core/config.h"
#include "gantry/launch/job_ending.h"
#include "gantry/launch/job_start.h"
#include "gantry/tensors/exceptions.h"

namespace gantry {

// The processes of a job, that something has started, before their ranks begin.
class StartedJob {
 public:
  virtual ~StartedJob() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Gathers a text from each process, by rank. All have the same length, at most 4,000 bytes. Collective over the job.
  // Ends the job if a process does not come, after it has printed `own_error`, this rank's start error; "" without one.
  virtual std::vector<std::string> gather(const std::string& mine, const std::string& own_error) = 0;
  // True if the other ranks have begun long ago.
  virtual bool joins() const { return false; }
  // Collective over the job, in place of run(), if the ranks do not begin.
  virtual void leave() {}
  // Runs the body in this process's rank; the exit code, where it comes back.
  virtual int run(const Config& config, const Mesh& mesh, const std::function<void(World&)>& body) = 0;
};

// By MPI, which it initialises.
std::unique_ptr<StartedJob> start_mpi_job(const CommConfig& config);

// Over sockets. Collective over the job: until all its processes have met.
std::unique_ptr<StartedJob> start_tcp_job(const JobStart& start, const Config& config);

// Each rank passes its failure, if it has one. If none has, the ranks may begin. Otherwise each failure
// is printed once, by the lowest rank that has it, with its name unless all have the same; gives the exit code of the
// lowest rank that failed. Collective over the job.
std::optional<int> agree_to_start(StartedJob& job, const std::optional<Failure>& mine);

// This rank's part of its job's control plane. While it lives, the job hears of this process's failure and early end.
class JobControl {
 public:
  // `name`: the rank's.
  JobControl(std::unique_ptr<ControlPlane> plane, const std::string& name);
  ~JobControl();

  // Collective over the job: this rank's work is done. PeerError if a rank is lost or fails meanwhile.
  void leave() { plane_->leave(); }

 private:
  std::unique_ptr<ControlPlane> plane_;
};

// The control plane of an MPI job, whose ranks have all come to it. MPI carries the meeting place and the token from
// rank 0 to the others: the hub of `gantry launch`, or rank 0's own. ConfigError or ResourceError for an interface that
// can't be had.
std::unique_ptr<ControlPlane> meet_over_mpi(const CommConfig& config, ControlOptions options,
                                            const ControlEvents& events, bool one_machine);

// The control plane of the job, after all ranks have come to it. The hub is the launch's, or rank 0's. In the second
// case the others find it by a store of LibTorch's at MASTER_ADDR and MASTER_PORT, which torchrun or rank 0 serves.
// Collective over the job. PeerError where ranks don't come, ConfigError for an interface that can't be had.
std::unique_ptr<ControlPlane> meet_as_started(const JobStart& start, const CommConfig& config, ControlOptions options,
                                              const ControlEvents& events);

// The sockets of a job whose ranks have come to `plane`, which carries their addresses until all are connected.
std::unique_ptr<Transport> make_tcp_transport(ControlPlane& plane, int rank, int ranks, double timeout_seconds,
                                              const std::function<std::string(int)>& describe_rank);

ControlOptions control_options(const CommConfig& config, int rank, int ranks,
                               const std::function<std::string(int)>& describe_rank);
// `gantry launch`, if that has started this process.
std::optional<Rendezvous> launch_meeting();

// The backend and the control plane of a rank.
struct RankProcess {
  std::unique_ptr<ProcessBackend> backend;
  std::unique_ptr<JobControl> control;  // null where there is one rank
};

// Runs the body on the backend that `begin` makes, and ends the job if one of the two throws. The control plane that
// `begin` has made until then notifies the other ranks.
int run_process_job(const Config& config, const Mesh& mesh, JobEnding& ending,
                    const std::function<void(RankProcess&)>& begin, const std::function<void(World&)>& body);

}  // namespace gantry
