// The flags of the `gantry schedule` commands: the schedule, its times, and the output format.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "gantry/planner/configured_step.h"

namespace gantry::cli {

// Sums of larger times would lose the digits of small times.
inline constexpr double kMaxTime = 1e15;

struct ScheduleOptions {
  std::string source;  // a schedule's name, a .csv file, or a configuration
  std::optional<int> ranks;
  std::optional<int> microbatches;
  std::optional<int> chunks;
  std::optional<double> memory_limit;
  std::optional<int> group_size;
  std::string times = "1,1,1,0";
  std::string stage_times;
  std::string gather;                // empty: parameters are not sharded
  std::string gather_times = "1,1";  // time of a gather and of a reduction
  std::string offload = "none";
  double host_bandwidth = 0;  // 0: transfers take no time
  double state = 0;           // optimizer state of a rank, in chunk activations
  bool csv = false;
  bool lowered = false;
  bool json = false;
  std::string format = "text";
  std::string output;
  std::optional<planner::ConfiguredStep> configured;  // set if the source is a configuration
};

// Each adds flags to a command; `options` outlives it.
void add_schedule_source(CLI::App& command, ScheduleOptions& options);
void add_times(CLI::App& command, ScheduleOptions& options);
void add_gather(CLI::App& command, ScheduleOptions& options);
void add_offload(CLI::App& command, ScheduleOptions& options);
// Adds the flags above, the times of the actions that they add, and the times of single stages.
void add_all_times(CLI::App& command, ScheduleOptions& options);

}  // namespace gantry::cli
