// What goes wrong on some ranks before any of them begins: the others are told, and it is printed, once.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fmt/format.h>
#include <vector>

#include "gantry/comm/backends.h"
#include "gantry/comm/mpi/mpi_backend.h"
#include "gantry/comm/mpi/mpi_environment.h"
#include "gantry/core/this_host.h"

namespace gantry {
namespace {

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

}  // namespace gantry
