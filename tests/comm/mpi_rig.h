// A job of three ranks over the MPI backend, without a launch around it.
#pragma once

#include <memory>
#include <string>

#include "gantry/comm/mpi/mpi_backend.h"
#include "gantry/core/error.h"
#include "gantry/launch/mpi_control.h"
#include "thrown_by.h"

namespace gantry::testing {

constexpr int kRanks = 3;

inline std::string name_of(int rank) { return "rank " + std::to_string(rank); }

// What ends the waits of a job's ranks when one of them fails, as in a launch; nothing ends the process.
inline ControlEvents failures_are_thrown(MpiBackend& backend) {
  const auto hear = [&backend](const JobFailure& failure) { backend.hear(failure); };
  return {.on_lost = hear, .on_abort = hear};
}

// A backend, its control plane and the group of all ranks.
struct Job {
  explicit Job(const WaitLimits& waits = {.timeout_seconds = 30}, MpiLimits limits = {})
      : backend(make_mpi_backend(waits, name_of, limits)),
        control({}, *backend, name_of, failures_are_thrown(*backend)) {
    control.rendezvous();
    // After it: all meet here, so that a rank that fails at once does not end the rendezvous of a slower one.
    group = backend->make_group("all", {0, 1, 2});
  }
  ~Job() {
    try {
      control.leave();
    } catch (const PeerError&) {
      // A rank has failed, as its test wanted.
    }
  }
  int rank() const { return group->rank(); }
  std::unique_ptr<MpiBackend> backend;
  MpiControl control;
  std::unique_ptr<ProcessGroup> group;
};

}  // namespace gantry::testing
