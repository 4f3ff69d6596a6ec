// A job of processes that is not started by launch().
#pragma once

#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "gantry/comm/mpi/mpi_transport.h"
#include "gantry/comm/processes/job_hosts.h"
#include "gantry/comm/processes/process_backend.h"
#include "gantry/comm/processes/process_engine.h"
#include "gantry/comm/processes/transport.h"
#include "gantry/core/error.h"
#include "gantry/launch/backends.h"
#include "gantry/launch/process_job.h"
#include "thrown_by.h"

namespace gantry::testing {

constexpr int kRanks = 3;  // in most of these tests

inline std::string name_of(int rank) { return "rank " + std::to_string(rank); }

// Keeps a failure that another rank reports before this rank's own job is complete.
class EarlyFailure {
 public:
  bool keep(const JobFailure& failure) {
    const std::lock_guard lock(mutex_);
    if (!ended_) failure_ = failure;
    return !ended_;
  }
  void end(KnownFailures& failures) {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    if (failure_) failures.hear(*failure_);
  }

 private:
  std::mutex mutex_;
  bool ended_ = false;
  std::optional<JobFailure> failure_;
};

// A backend, its control plane and the group of all ranks. If a rank fails, the waits of the others end as in a launch,
// but no process ends.
struct Job {
  explicit Job(const WaitLimits& waits = {.timeout_seconds = 30}, ProcessLimits limits = {}) {
    std::unique_ptr<ControlPlane> plane =
        under_mpirun() ? begin_over_mpi(waits, limits) : begin_over_tcp(waits, limits);
    control = std::make_unique<JobControl>(std::move(plane), name_of(backend->rank()));
    // All ranks meet here after the rendezvous, so that an immediate failure of one rank does not end the
    // rendezvous of a slower one.
    std::vector<int> all(static_cast<std::size_t>(backend->size()));
    std::iota(all.begin(), all.end(), 0);
    group = backend->make_group("all", all);
    early->end(*failures);
  }
  ~Job() {
    const auto unless_failed = [](const auto& call) {
      try {
        call();
      } catch (const PeerError&) {
        // The test has made a rank fail.
      }
    };
    // Over sockets, receivers may still request data, so the backend is closed first. MPI would reuse the
    // communicators for the next job, which could then receive messages of a failed one.
    if (backend && !under_mpirun()) unless_failed([&] { backend->close(); });
    unless_failed([&] { control->leave(); });
  }
  int rank() const { return group->rank(); }

  std::shared_ptr<KnownFailures> failures = std::make_shared<KnownFailures>();
  std::shared_ptr<EarlyFailure> early = std::make_shared<EarlyFailure>();
  std::unique_ptr<ProcessBackend> backend;
  std::unique_ptr<JobControl> control;
  std::unique_ptr<ProcessGroup> group;

 private:
  std::unique_ptr<ControlPlane> begin_over_mpi(const WaitLimits& waits, const ProcessLimits& limits) {
    auto transport = make_mpi_transport(waits.timeout_seconds);
    const ControlOptions options = control_options({}, transport->rank(), transport->size(), name_of);
    backend = make_process_backend(std::move(transport), failures, waits, name_of, limits);
    return meet_over_mpi({}, options, events(), backend->engine()->hosts().one_machine());
  }
  std::unique_ptr<ControlPlane> begin_over_tcp(const WaitLimits& waits, const ProcessLimits& limits) {
    const JobStart start = find_job_start().value();
    auto plane = meet_as_started(start, {}, control_options({}, start.rank, start.ranks, name_of), events());
    backend = make_process_backend(make_tcp_transport(*plane, start.rank, start.ranks, waits.timeout_seconds, name_of),
                                   failures, waits, name_of, limits);
    return plane;
  }
  ControlEvents events() {
    const auto hear = [failures = failures, early = early](const JobFailure& failure) {
      if (!early->keep(failure)) failures->hear(failure);
    };
    return {.on_lost = hear, .on_abort = hear};
  }
};

}  // namespace gantry::testing
