#include "gantry/launch/mpi_control.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <optional>
#include <thread>

#include "gantry/comm/mpi/mpi_environment.h"
#include "gantry/core/addresses.h"
#include "gantry/core/stop_request.h"

namespace gantry {
namespace {

// The networks to which mpirun is restricted, by `gantry launch --interface` or by its own flags: it hands them on to
// the ranks.
std::string launcher_networks() {
  for (const char* name : {"OMPI_MCA_btl_tcp_if_include", "OMPI_MCA_oob_tcp_if_include"})
    if (const char* networks = std::getenv(name)) return networks;
  return "";
}

// Where rank 0 has the ranks meet.
struct Place {
  HubPlace hub = HubPlace::rank0;
  char meeting[160] = "";  // encoded
};

// `gantry launch`, if that has started this job's ranks, and not what has started them within one of its own.
std::optional<Rendezvous> launch_meeting(const MpiBackend& backend) {
  const char* text = std::getenv(Rendezvous::kVariable);
  const char* ranks = std::getenv("OMPI_COMM_WORLD_SIZE");
  if (!text || !ranks || std::atoi(ranks) != backend.size()) return std::nullopt;
  return decode_meeting(text);
}

Place broadcast(HubPlace hub, const Rendezvous& meeting) {
  Place place{hub};
  std::strncpy(place.meeting, encode_meeting(meeting).c_str(), sizeof(place.meeting) - 1);
  check_mpi(MPI_Bcast(&place, sizeof(place), MPI_BYTE, 0, MPI_COMM_WORLD), "MPI_Bcast");
  return place;
}

// What ends the job blocks until the process ends, so it gets a thread of its own.
ControlEvents events_for(MpiBackend& backend) {
  return {[&backend](const JobFailure& failure) {
            backend.hear(failure);
            std::thread([&backend, failure] { backend.end_lost(failure); }).detach();
          },
          [&backend](const JobFailure& failure) {
            backend.hear(failure);
            std::thread([&backend, failure] { backend.end_reported(failure); }).detach();
          },
          [&backend](const std::set<int>& ranks) {
            backend.note_ended({ranks.begin(), ranks.end()});
          },
          hear_stop};
}

// Rank 0 knows where the hub is, or has it.
std::unique_ptr<ControlPlane> meet(const CommConfig& config, const MpiBackend& backend, ControlOptions options,
                                   const ControlEvents& events) {
  if (backend.rank() == 0) {
    if (const auto launch = launch_meeting(backend)) {
      broadcast(options.hub = HubPlace::launch, *launch);
      return ControlPlane::join(options, events, *launch);
    }
    const bool one_host = mpi_ranks_on_host() == backend.size();
    auto plane = ControlPlane::host(options, events, control_address(config.interface, one_host, launcher_networks()));
    broadcast(HubPlace::rank0, plane->meeting());
    return plane;
  }
  const Place place = broadcast(HubPlace::rank0, {});
  options.hub = place.hub;
  return ControlPlane::join(options, events, decode_meeting(place.meeting).value_or(Rendezvous{}));
}

}  // namespace

MpiControl::MpiControl(const CommConfig& config, const MpiBackend& backend,
                       const std::function<std::string(int)>& describe_rank, const ControlEvents& events) {
  const Watchdog watchdog(config.timeout_seconds, fmt::format("{} waited {} s for all ranks to begin",
                                                              describe_rank(backend.rank()), config.timeout_seconds));
  plane_ = meet(config, backend,
                {.rank = backend.rank(),
                 .ranks = backend.size(),
                 .heartbeat_seconds = config.heartbeat_seconds,
                 .lost_after_seconds = config.lost_after_seconds,
                 .timeout_seconds = config.timeout_seconds,
                 .describe_rank = describe_rank,
                 .wants_stop = stop_requested_here},
                events);
  set_early_end_line(describe_rank(backend.rank()) +
                     ": the program ended during the rank's work; expected the body of launch to return");
  set_failure_listener(
      [plane = plane_.get()](int exit_code, const std::string& cause) { plane->tell(exit_code, cause); });
}

MpiControl::~MpiControl() {
  set_early_end_line("");
  set_failure_listener({});
}

std::unique_ptr<MpiControl> start_mpi_control(const CommConfig& config, MpiBackend& backend,
                                              const std::function<std::string(int)>& describe_rank) {
  if (backend.size() == 1) return nullptr;
  return std::make_unique<MpiControl>(config, backend, describe_rank, events_for(backend));
}

}  // namespace gantry
