#include "gantry/comm/mpi/mpi_control.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <thread>

#include "gantry/comm/control/addresses.h"
#include "gantry/comm/control/stop_request.h"
#include "gantry/comm/mpi/mpi_environment.h"

namespace gantry {
namespace {

// The networks that mpirun was told to keep to, by `gantry launch --interface` or by its own flags: it hands them on to
// the ranks.
std::string launcher_networks() {
  for (const char* name : {"OMPI_MCA_btl_tcp_if_include", "OMPI_MCA_oob_tcp_if_include"})
    if (const char* networks = std::getenv(name)) return networks;
  return "";
}

// A meeting as bytes that MPI carries.
struct MeetingBytes {
  char address[64] = "";
  int port = 0;
  JobToken token{};
};

Meeting broadcast(const Meeting& meeting) {
  MeetingBytes bytes;
  std::strncpy(bytes.address, meeting.address.c_str(), sizeof(bytes.address) - 1);
  bytes.port = meeting.port;
  bytes.token = meeting.token;
  check_mpi(MPI_Bcast(&bytes, sizeof(bytes), MPI_BYTE, 0, MPI_COMM_WORLD), "MPI_Bcast");
  return {bytes.address, bytes.port, bytes.token};
}

// What ends the job blocks until the process ends, so it gets a thread of its own.
ControlEvents events_for(MpiBackend& backend) {
  return {[&backend](const JobFailure& failure) {
            backend.hear(failure);
            std::thread([&backend, failure] { backend.end_lost(failure); }).detach();
          },
          [&backend](const JobFailure& failure) {
            backend.hear(failure);
            std::thread([&backend, failure] { backend.end_told(failure); }).detach();
          },
          [&backend](const std::set<int>& ranks) {
            backend.note_ended({ranks.begin(), ranks.end()});
          },
          hear_stop};
}

}  // namespace

MpiControl::MpiControl(const CommConfig& config, MpiBackend& backend,
                       const std::function<std::string(int)>& describe_rank) {
  const ControlOptions options{.rank = backend.rank(),
                               .ranks = backend.size(),
                               .heartbeat_seconds = config.heartbeat_seconds,
                               .lost_after_seconds = config.lost_after_seconds,
                               .timeout_seconds = config.timeout_seconds,
                               .describe_rank = describe_rank,
                               .wants_stop = stop_requested_here};
  const ControlEvents events = events_for(backend);
  const Watchdog watchdog(config.timeout_seconds, fmt::format("{} waited {} s for all ranks to begin",
                                                              describe_rank(backend.rank()), config.timeout_seconds));
  if (backend.rank() == 0) {
    const bool one_host = mpi_ranks_on_host() == backend.size();
    plane_ = ControlPlane::host(options, events, control_address(config.interface, one_host, launcher_networks()));
    broadcast(plane_->meeting());
  } else {
    plane_ = ControlPlane::join(options, events, broadcast({}));
  }
  set_early_end_line(describe_rank(backend.rank()) +
                     ": the program ended within its rank's work; expected the body of launch to return");
  set_failure_listener(
      [plane = plane_.get()](int exit_code, const std::string& cause) { plane->tell(exit_code, cause); });
}

MpiControl::~MpiControl() {
  set_early_end_line("");
  set_failure_listener({});
}

std::unique_ptr<MpiControl> start_mpi_control(const CommConfig& config, MpiBackend& backend,
                                              const std::function<std::string(int)>& describe_rank) {
  if (config.heartbeat_seconds == 0 || backend.size() == 1) return nullptr;
  return std::make_unique<MpiControl>(config, backend, describe_rank);
}

}  // namespace gantry
