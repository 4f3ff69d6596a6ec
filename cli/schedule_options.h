// The flags of `gantry schedule`'s commands: which schedule, its times, and what it is shown as.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "gantry/cli/schedule_of_config.h"

namespace gantry::cli {

// Sums of more than this would lose the digits of the smaller ones.
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
  std::string gather;                // empty: parameters are not cut
  std::string gather_times = "1,1";  // of a gather and of a sum
  std::string offload = "none";
  double host_bandwidth = 0;  // 0: moves take no time
  double state = 0;           // the optimizer's, of a rank
  bool csv = false;
  bool lowered = false;
  bool json = false;
  std::string format = "text";
  std::string output;
  std::optional<ConfiguredStep> configured;  // of a configuration
};

// Each adds flags to a command; `options` outlives it.
void add_schedule_source(CLI::App& command, ScheduleOptions& options);
void add_times(CLI::App& command, ScheduleOptions& options);
void add_gather(CLI::App& command, ScheduleOptions& options);
void add_offload(CLI::App& command, ScheduleOptions& options);
// These, and the times of what they add, and those of single stages.
void add_all_times(CLI::App& command, ScheduleOptions& options);

}  // namespace gantry::cli
