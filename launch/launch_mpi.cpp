// Ranks as processes of an MPI job: what is said before they begin, and how they end.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <optional>
#include <thread>

#include "gantry/comm/mpi/mpi_backend.h"
#include "gantry/comm/mpi/mpi_environment.h"
#include "gantry/core/error.h"
#include "gantry/core/this_host.h"
#include "gantry/diagnosis/flight_recorder.h"
#include "gantry/launch/backends.h"
#include "gantry/launch/mpi_control.h"

namespace gantry {
namespace {

// What a rank says of itself before any begins.
struct Said {
  int exit_code = 0;  // 0: nothing went wrong
  char line[2044] = "";

  bool is_same(const Said& other) const {
    return exit_code == other.exit_code && std::strncmp(line, other.line, sizeof(line)) == 0;
  }
};

void begin_mpi() {
  mpi_initialise();
  set_failure_notes({recorder::record_failure, recorder::print_recorder_hint});
}

}  // namespace

std::optional<int> agree_to_start(const std::optional<Failure>& mine, double timeout_seconds) {
  begin_mpi();
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
  begin_mpi();
  if (mesh.size() != mpi_world_size())
    throw UsageError({"launch",
                      "the mesh has " + std::to_string(mesh.size()) + " ranks, but the MPI job has " +
                          std::to_string(mpi_world_size()),
                      "the same number", "start the program with the mpirun of this MPI"});
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
