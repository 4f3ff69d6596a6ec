// A job of three ranks over the MPI backend, without a launch around it.
#pragma once

#include <memory>
#include <string>

#include "gantry/comm/mpi/mpi_backend.h"
#include "gantry/core/error.h"

namespace gantry::testing {

constexpr int kRanks = 3;

inline std::string name_of(int rank) { return "rank " + std::to_string(rank); }

// A backend and the group of all ranks.
struct Job {
  explicit Job(const WaitLimits& waits = {.timeout_seconds = 30}, MpiLimits limits = {})
      : backend(make_mpi_backend(waits, name_of, limits)), group(backend->make_group("all", {0, 1, 2})) {}
  int rank() const { return group->rank(); }
  std::unique_ptr<MpiBackend> backend;
  std::unique_ptr<ProcessGroup> group;
};

// What an operation throws; "" if nothing.
template <class Error = PeerError, class Body>
std::string thrown_by(Body body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace gantry::testing
