// Ranks as processes of an MPI job: what is said before they begin, the control plane beside them, and how they end.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <optional>
#include <thread>

#include "gantry/comm/backends.h"
#include "gantry/comm/control/addresses.h"
#include "gantry/comm/control/control_plane.h"
#include "gantry/comm/control/stop_request.h"
#include "gantry/comm/mpi/mpi_backend.h"
#include "gantry/comm/mpi/mpi_environment.h"
#include "gantry/core/error.h"
#include "gantry/core/this_host.h"

namespace gantry {
namespace {

// The networks that mpirun was told to keep to, by `gantry launch --interface` or by its own flags: it hands them on to
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
std::optional<Meeting> launch_meeting(const MpiBackend& backend) {
  const char* text = std::getenv(Meeting::kVariable);
  const char* ranks = std::getenv("OMPI_COMM_WORLD_SIZE");
  if (!text || !ranks || std::atoi(ranks) != backend.size()) return std::nullopt;
  return decode_meeting(text);
}

Place broadcast(HubPlace hub, const Meeting& meeting) {
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
            std::thread([&backend, failure] { backend.end_told(failure); }).detach();
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
  return ControlPlane::join(options, events, decode_meeting(place.meeting).value_or(Meeting{}));
}

// The job's processes hear of each other's ends, failures and stops while this lives. MPI carries the meeting place and
// the token from rank 0 to the others: the hub of `gantry launch`, or rank 0's own.
class MpiControl {
 public:
  // Collective over the job. ConfigError or ResourceError for an interface that can't be had. `backend` outlives it:
  // its operations, and the job, end by the plane's events.
  MpiControl(const CommConfig& config, MpiBackend& backend, const std::function<std::string(int)>& describe_rank);
  ~MpiControl();

  // Collective over the job: until all ranks are connected. PeerError if some don't come.
  void rendezvous() { plane_->rendezvous(); }
  // Collective over the job: this rank's work is done. PeerError if a rank is lost or fails meanwhile.
  void leave() { plane_->leave(); }

 private:
  std::unique_ptr<ControlPlane> plane_;
};

MpiControl::MpiControl(const CommConfig& config, MpiBackend& backend,
                       const std::function<std::string(int)>& describe_rank) {
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
                events_for(backend));
  set_early_end_line(describe_rank(backend.rank()) +
                     ": the program ended within its rank's work; expected the body of launch to return");
  set_failure_listener(
      [plane = plane_.get()](int exit_code, const std::string& cause) { plane->tell(exit_code, cause); });
}

MpiControl::~MpiControl() {
  set_early_end_line("");
  set_failure_listener({});
}

// Null where there is one rank.
std::unique_ptr<MpiControl> start_mpi_control(const CommConfig& config, MpiBackend& backend,
                                              const std::function<std::string(int)>& describe_rank) {
  if (backend.size() == 1) return nullptr;
  return std::make_unique<MpiControl>(config, backend, describe_rank);
}

// What a rank says of itself before any begins.
struct Said {
  int exit_code = 0;  // 0: nothing went wrong
  char line[2044] = "";

  bool is_same(const Said& other) const {
    return exit_code == other.exit_code && std::strncmp(line, other.line, sizeof(line)) == 0;
  }
};

}  // namespace

std::optional<int> agree_to_start(const std::optional<Failure>& mine, double timeout_seconds) {
  mpi_initialise();
  const int rank = mpi_world_rank();
  const std::string name = fmt::format("rank {} on {}", rank, host_name());
  const Watchdog watchdog(
      timeout_seconds,
      mine ? name + ": " + mine->line : fmt::format("{} waited {} s for all ranks to begin", name, timeout_seconds));
  int failed = mine ? 1 : 0;
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD), "MPI_Allreduce");
  if (failed == 0) return std::nullopt;
  std::vector<Said> said(static_cast<std::size_t>(mpi_world_size()));
  Said own;
  if (mine) {
    own.exit_code = mine->exit_code;
    std::strncpy(own.line, mine->line.c_str(), sizeof(own.line) - 1);
  }
  check_mpi(MPI_Allgather(&own, sizeof(own), MPI_BYTE, said.data(), sizeof(own), MPI_BYTE, MPI_COMM_WORLD),
            "MPI_Allgather");
  const auto is_own = [&](const Said& one) { return one.is_same(own); };
  if (mine && std::none_of(said.begin(), said.begin() + rank, is_own)) {
    const bool of_all = std::all_of(said.begin(), said.end(), is_own);
    std::fprintf(stderr, "error: %s%s\n", of_all ? "" : (name + ": ").c_str(), mine->line.c_str());
  }
  return std::find_if(said.begin(), said.end(), [](const Said& one) { return one.exit_code != 0; })->exit_code;
}

int launch_mpi(const Config& config, const Mesh& mesh, const std::function<void(World&)>& body) {
  mpi_initialise();
  if (mesh.size() != mpi_world_size())
    throw UsageError(
        {"launch",
         "a mesh of " + std::to_string(mesh.size()) + " ranks in an MPI job of " + std::to_string(mpi_world_size()),
         "as many", "start the program by this MPI's own mpirun"});
  const auto describe_rank = [mesh](int rank) { return mesh.describe_rank(rank); };
  std::unique_ptr<MpiBackend> backend;
  std::unique_ptr<MpiControl> control;  // stays while the job is ended
  std::exception_ptr failure;
  try {
    set_mpi_finalize_deadline(config.comm.timeout_seconds);
    set_rank_threads(config.comm, static_cast<int>(mpi_cores_of_rank() + 1e-6));
    backend = make_mpi_backend({config.comm.timeout_seconds, config.comm.lost_after_seconds}, describe_rank);
    control = start_mpi_control(config.comm, *backend, describe_rank);
    if (control) control->rendezvous();
    World world(*backend, config, mesh);
    body(world);
    backend->close();
    if (control) control->leave();
  } catch (...) {
    failure = std::current_exception();
  }
  if (!failure) return 0;
  const Failure what = describe_exception(failure);
  if (backend) backend->end_job(what.exit_code, what.line);
  // Nothing tells the other ranks yet but the end of this one.
  std::fprintf(stderr, "error: %s: %s\n", mesh.describe_rank(mpi_world_rank()).c_str(), what.line.c_str());
  mpi_abort(what.exit_code);
}

}  // namespace gantry
