// Jobs whose ranks are processes that communicate over MPI or sockets.
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

// The processes of a job that a launcher has started, before their ranks begin.
class StartedJob {
 public:
  virtual ~StartedJob() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Gathers a text from each process, in rank order. All texts have the same length, at most 4,000 bytes.
  // Collective over the job. If a process does not connect, ends the job after printing `own_error`, this
  // rank's start error ("" without one).
  virtual std::vector<std::string> gather(const std::string& mine, const std::string& own_error) = 0;
  // True if this rank joins ranks that have already begun.
  virtual bool joins() const { return false; }
  // Ends the connection of the processes if the ranks do not begin. Collective over the job, in place of
  // run().
  virtual void leave() {}
  // Runs the body in this process's rank. Returns the exit code, if it returns.
  virtual int run(const Config& config, const Mesh& mesh, const std::function<void(World&)>& body) = 0;
};

// Starts a job over MPI, and initialises MPI.
std::unique_ptr<StartedJob> start_mpi_job(const CommConfig& config);

// Starts a job over sockets. Collective over the job: waits until all its processes are connected.
std::unique_ptr<StartedJob> start_tcp_job(const JobStart& start, const Config& config);

// Each rank passes its start failure, if it has one. Returns nullopt if no rank has one: the ranks may begin.
// Otherwise each failure is printed once, by the lowest rank that has it, with the rank's name unless all
// ranks have the same one. Returns the exit code of the lowest rank that failed. Collective over the job.
std::optional<int> agree_to_start(StartedJob& job, const std::optional<Failure>& mine);

// This rank's part of the control plane. While it exists, the failure or early end of this process is
// reported to the job.
class JobControl {
 public:
  // `name`: the name of the rank.
  JobControl(std::unique_ptr<ControlPlane> plane, const std::string& name);
  ~JobControl();

  // Reports that this rank's work is done, and waits for the others. Collective over the job. Throws
  // PeerError if a rank is lost or fails meanwhile.
  void leave() { plane_->leave(); }

 private:
  std::unique_ptr<ControlPlane> plane_;
};

// Returns the control plane of an MPI job, after all ranks have connected. MPI carries the address and token
// of the hub from rank 0 to the others: the hub of `gantry launch`, or rank 0's own. Throws ConfigError or
// ResourceError if the network interface cannot be used.
std::unique_ptr<ControlPlane> meet_over_mpi(const CommConfig& config, ControlOptions options,
                                            const ControlEvents& events, bool one_machine);

// Returns the control plane of the job, after all ranks have connected. The hub is in the launch or in rank
// 0. In rank 0, the others find it through a LibTorch TCPStore at MASTER_ADDR and MASTER_PORT, which torchrun
// or rank 0 serves. Collective over the job. Throws PeerError if ranks do not connect, and ConfigError if the
// network interface cannot be used.
std::unique_ptr<ControlPlane> meet_as_started(const JobStart& start, const CommConfig& config, ControlOptions options,
                                              const ControlEvents& events);

// Returns the sockets of a job whose ranks have connected to `plane`, which exchanges their addresses.
std::unique_ptr<Transport> make_tcp_transport(ControlPlane& plane, int rank, int ranks, double timeout_seconds,
                                              const std::function<std::string(int)>& describe_rank);

ControlOptions control_options(const CommConfig& config, int rank, int ranks,
                               const std::function<std::string(int)>& describe_rank);
// Returns the address of the hub in `gantry launch`, if that has started this process.
std::optional<Rendezvous> launch_meeting();

// The backend and the control plane of a rank.
struct RankProcess {
  std::unique_ptr<ProcessBackend> backend;
  std::unique_ptr<JobControl> control;  // null if there is only one rank
};

// Runs the body on the backend that `begin` makes, and ends the job if one of the two throws. The control
// plane notifies the other ranks, if `begin` has made it by then.
int run_process_job(const Config& config, const Mesh& mesh, JobEnding& ending,
                    const std::function<void(RankProcess&)>& begin, const std::function<void(World&)>& body);

}  // namespace gantry
