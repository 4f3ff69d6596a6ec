// Ranks as processes of an MPI job: two communicators a group, nonblocking calls only, and one engine per job that
// moves every outstanding operation forward whenever any of them is waited for or asked. Free of mpi.h, so that nothing
// else needs it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gantry/comm/wait_limits.h"
#include "gantry/comm/world.h"

namespace gantry {

class MpiEngine;
struct JobFailure;

// Sizes at which the backend changes its ways; equal on all ranks.
struct MpiLimits {
  std::int64_t chunk_bytes = std::int64_t{1} << 30;  // longest MPI message (MPI counts in int); at least 4096
  std::int64_t direct_bytes = std::int64_t{32}
                              << 10;  // all_reduce up to this: everyone gets everything and sums itself
  std::int64_t segment_bytes = std::int64_t{8} << 20;  // larger reductions go in pieces that stay in the cache
  std::int64_t slot_bytes = std::int64_t{128} << 10;   // what a rank puts into shared memory at a time
};

class MpiBackend final : public Backend {
 public:
  explicit MpiBackend(std::shared_ptr<MpiEngine> engine) : engine_(std::move(engine)) {}
  ~MpiBackend() override;  // as close(), but gives up silently

  const char* name() const override { return "mpi"; }
  int rank() const override;
  int size() const override;
  std::unique_ptr<ProcessGroup> make_group(const std::string& label, const std::vector<int>& ranks) override;
  void abort(const std::string& reason) override;
  bool has_ended(int rank) const override;
  const std::shared_ptr<MpiEngine>& engine() const { return engine_; }  // for backends that stand on this one

  // Waits until every message that was sent has left, at most the deadline (PeerError). Call it when the body has
  // ended.
  void close();
  // Ends the job because this rank failed: tells the control plane, prints `line` as "error: <rank>: <line>" unless
  // another rank's failure stands, and ends every process.
  [[noreturn]] void end_job(int exit_code, const std::string& line);

  // Of the control plane: the failure that stands, of this rank or another one. This rank's operations throw the cause.
  void hear(const JobFailure& failure);
  // After hear(), on a thread of its own; blocks until the process ends. For a rank that is lost, this rank prints the
  // cause and ends the job; for a member that reported it, only if that one has not done so after a grace time.
  [[noreturn]] void end_reported(const JobFailure& failure);
  [[noreturn]] void end_lost(const JobFailure& failure);
  // The bodies of these ranks have returned.
  void note_ended(const std::vector<int>& ranks);

 private:
  void print_once(const std::string& line);
  [[noreturn]] void print_and_abort(int exit_code, const std::string& line);

  std::shared_ptr<MpiEngine> engine_;
  std::atomic<bool> printed_{false};  // whichever thread ends the job: one line
};

// Collective over the job. Initialises MPI if nobody has. `describe_rank` names world ranks in messages.
std::unique_ptr<MpiBackend> make_mpi_backend(const WaitLimits& waits, std::function<std::string(int)> describe_rank,
                                             MpiLimits limits = {});

// MPI_Init_thread(MULTIPLE), once; MPI_Finalize then runs at the process's normal exit. ResourceError without threads.
void mpi_initialise();
int mpi_world_size();
int mpi_world_rank();
int mpi_ranks_on_host();
// This rank's share of its host's cores: the ranks may be bound to cores of their own, or share them and a quota.
double mpi_cores_of_rank();
// Flushes the streams and ends all processes of the job with this code.
[[noreturn]] void mpi_abort(int exit_code);
// Waits for all ranks; nothing if MPI is not running. Never after a failure.
void mpi_finalize();
void set_mpi_finalize_deadline(double seconds);  // for the other ranks to end too; exit code 7 after it

}  // namespace gantry
