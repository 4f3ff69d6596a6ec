// The end of a job of processes after a failure: one rank prints the cause, and all processes end.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "gantry/comm/control/control_plane.h"
#include "gantry/comm/processes/known_failures.h"

namespace gantry {

class JobEnding {
 public:
  // `describe_rank` names world ranks. `aborts_all`: a process that ends with a failure ends all others by
  // MPI_Abort. Otherwise each process ends itself when it learns of the failure.
  JobEnding(int rank, int size, std::function<std::string(int)> describe_rank, bool aborts_all)
      : rank_(rank), size_(size), describe_rank_(std::move(describe_rank)), aborts_all_(aborts_all) {}

  std::shared_ptr<KnownFailures> failures() const;
  // Begins a new set of failures, without any, for the next generation of an elastic job.
  void begin_generation();
  // Sets the function that returns the ranks whose connection with this one has ended. It must not block.
  void set_lost_ranks(std::function<std::vector<int>()> lost_ranks);
  // Returns the events for the control plane: they end the rank's operations and the process. This object
  // must outlive the plane.
  ControlEvents events();

  // Ends the job because this rank failed: reports it to the control plane, prints `line` as "error: <rank>:
  // <line>" unless another rank's failure counts, and ends the processes.
  [[noreturn]] void end_job(int exit_code, const std::string& line);

 private:
  [[noreturn]] void end_reported(const JobFailure& failure);
  [[noreturn]] void end_lost(const JobFailure& failure);
  int lost_before_this() const;
  void print_once(const std::string& line);
  [[noreturn]] void print_and_end(int exit_code, const std::string& line);
  [[noreturn]] void end_with_others(double seconds, const JobFailure& failure);

  const int rank_, size_;
  const std::function<std::string(int)> describe_rank_;
  const bool aborts_all_;
  mutable std::mutex mutex_;  // guards the following two
  std::shared_ptr<KnownFailures> failures_ = std::make_shared<KnownFailures>();
  std::function<std::vector<int>()> lost_ranks_;
  std::atomic<bool> printed_{false};  // only one of the threads that end the job prints its line
};

}  // namespace gantry
