// Ranks as processes of an MPI job.
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>

#include "gantry/comm/mpi/mpi_environment.h"
#include "gantry/comm/mpi/mpi_transport.h"
#include "gantry/comm/processes/process_end.h"
#include "gantry/comm/processes/process_engine.h"
#include "gantry/core/error.h"
#include "gantry/core/host/addresses.h"
#include "gantry/core/host/this_host.h"
#include "gantry/diagnosis/flight_recorder.h"
#include "gantry/launch/process_job.h"

namespace gantry {
namespace {

// Returns the networks to which mpirun is restricted, by `gantry launch --interface` or by its own flags.
// mpirun passes them to the ranks in the environment.
std::string launcher_networks() {
  for (const char* name : {"OMPI_MCA_btl_tcp_if_include", "OMPI_MCA_oob_tcp_if_include"})
    if (const char* networks = std::getenv(name)) return networks;
  return "";
}

// The hub to which rank 0 makes the ranks connect.
struct Place {
  HubPlace hub = HubPlace::rank0;
  char meeting[160] = "";  // encoded
};

Place broadcast(HubPlace hub, const Rendezvous& meeting) {
  Place place{hub};
  std::strncpy(place.meeting, encode_meeting(meeting).c_str(), sizeof(place.meeting) - 1);
  check_mpi(MPI_Bcast(&place, sizeof(place), MPI_BYTE, 0, MPI_COMM_WORLD), "MPI_Bcast");
  return place;
}

// Ignores a launch that has started an outer job, if this job was started within one of its ranks.
std::optional<Rendezvous> meeting_of_this_launch(int ranks) {
  const char* launched = std::getenv("OMPI_COMM_WORLD_SIZE");
  return launched && std::atoi(launched) == ranks ? launch_meeting() : std::nullopt;
}

// Rank 0 knows the address of the hub, or has the hub itself.
std::unique_ptr<ControlPlane> meet(const CommConfig& config, ControlOptions options, const ControlEvents& events,
                                   bool one_machine) {
  const Watchdog watchdog(config.timeout_seconds,
                          fmt::format("{} waited {} s for all ranks to begin", options.describe_rank(options.rank),
                                      config.timeout_seconds));
  if (options.rank > 0) {
    const Place place = broadcast(HubPlace::rank0, {});
    options.hub = place.hub;
    return ControlPlane::join(options, events, decode_meeting(place.meeting).value_or(Rendezvous{}));
  }
  if (const auto launch = meeting_of_this_launch(options.ranks)) {
    broadcast(options.hub = HubPlace::launch, *launch);
    return ControlPlane::join(options, events, *launch);
  }
  auto plane = ControlPlane::host(options, events, control_address(config.interface, one_machine, launcher_networks()));
  broadcast(HubPlace::rank0, plane->meeting());
  return plane;
}

class MpiJob final : public StartedJob {
 public:
  explicit MpiJob(const CommConfig& config)
      : timeout_seconds_(config.timeout_seconds), transport_(make_mpi_transport(config.timeout_seconds)) {
    set_failure_notes({recorder::record_failure, recorder::print_recorder_hint});
  }

  int rank() const override { return mpi_world_rank(); }
  int size() const override { return mpi_world_size(); }
  std::vector<std::string> gather(const std::string& mine, const std::string& own_error) override {
    if (!own_error.empty()) return transport_->gather(mine, own_error);
    return transport_->gather(
        mine, fmt::format("rank {} on {} waited {} s for all ranks to begin", rank(), host_name(), timeout_seconds_));
  }
  int run(const Config& config, const Mesh& mesh, const std::function<void(World&)>& body) override;

 private:
  void begin(RankProcess& process, const CommConfig& config, const std::function<std::string(int)>& describe_rank,
             JobEnding& ending);

  const double timeout_seconds_;
  std::unique_ptr<Transport> transport_;
};

void MpiJob::begin(RankProcess& process, const CommConfig& config, const std::function<std::string(int)>& describe_rank,
                   JobEnding& ending) {
  set_mpi_finalize_deadline(config.timeout_seconds);
  process.backend = make_process_backend(std::move(transport_), ending.failures(),
                                         {config.timeout_seconds, config.lost_after_seconds}, describe_rank);
  if (size() > 1)
    process.control =
        std::make_unique<JobControl>(meet_over_mpi(config, control_options(config, rank(), size(), describe_rank),
                                                   ending.events(), process.backend->engine()->hosts().one_machine()),
                                     describe_rank(rank()));
}

int MpiJob::run(const Config& config, const Mesh& mesh, const std::function<void(World&)>& body) {
  if (mesh.size() != size())
    throw UsageError({"launch", fmt::format("the mesh has {} ranks, but the MPI job has {}", mesh.size(), size()),
                      "the same number", "start the program with the mpirun of this MPI"});
  const auto describe_rank = [mesh](int rank) { return mesh.describe_rank(rank); };
  JobEnding ending(rank(), size(), describe_rank, /*aborts_all=*/true);
  return run_process_job(
      config, mesh, ending, [&](RankProcess& process) { begin(process, config.comm, describe_rank, ending); }, body);
}

}  // namespace

std::unique_ptr<StartedJob> start_mpi_job(const CommConfig& config) { return std::make_unique<MpiJob>(config); }

std::unique_ptr<ControlPlane> meet_over_mpi(const CommConfig& config, ControlOptions options,
                                            const ControlEvents& events, bool one_machine) {
  auto plane = meet(config, std::move(options), events, one_machine);
  plane->rendezvous();
  return plane;
}

}  // namespace gantry
