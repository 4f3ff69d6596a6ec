// The launcher that started this process as a rank of a job without MPI.
#pragma once

#include <optional>

namespace gantry {

struct JobStart {
  // Set by `gantry launch --backend tcp`.
  static constexpr const char* kRankVariable = "GANTRY_RANK";
  static constexpr const char* kRanksVariable = "GANTRY_RANKS";

  // Set for a rank that is started again, to join an elastic job.
  static constexpr const char* kJoinsVariable = "GANTRY_JOINS";

  int rank = 0;
  int ranks = 1;
  bool by_launch = false;  // `gantry launch`; otherwise torchrun, or another program that sets its variables
  bool joins = false;      // the job has already begun
};

// Reads GANTRY_RANK and GANTRY_RANKS, or RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. Returns nullopt
// without these.
std::optional<JobStart> find_job_start();

}  // namespace gantry
