// Which layers are computed again in the backward, so that every rank keeps to a limit of memory in the least time:
// what schedule.recompute: auto is.
//
// Bytes are those of an estimate (rank_memory()); times are multiplications alone, so that no cluster is asked for. A
// rank's peak follows from its own row, so that each rank has its least choices, of which the simulator takes the
// soonest together: all combinations where they are few, else rank by rank until none is better.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gantry/core/config.h"
#include "gantry/planner/estimate.h"
#include "gantry/planner/layout.h"
#include "gantry/schedule/schedule.h"

namespace gantry::planner {

struct RecomputeChoice {
  Recompute how = Recompute::kNone;
  std::vector<int> layers;     // of each stage the first so many; empty: none
  std::vector<Memory> memory;  // of each pipeline rank, at its peak
  double longer = 0;           // the share by which the simulated step is longer than with nothing computed again

  int recomputed() const;  // layers in all
};

// `schedule`: of the step's computations; `layers`: of each of its stages; `hows`: what may be chosen beside none.
// ConfigError where a rank needs more than `limit` bytes whatever is computed again.
RecomputeChoice choose_recompute(const Workload& workload, const Layout& layout, const schedule::Schedule& schedule,
                                 const std::vector<int>& layers, std::int64_t limit,
                                 const std::vector<Recompute>& hows);

// Of a configuration with `recompute: auto`, over so many replicas; nothing for any other. ConfigError where the memory
// of what it says is not known.
std::optional<RecomputeChoice> chosen_recompute(const Config& config, int data);

// As keys that mean the same: schedule.recompute and schedule.recompute_layers.
void apply(const RecomputeChoice& choice, ScheduleConfig& schedule);

}  // namespace gantry::planner
