// The names of the schedules, with which the configuration reader finds a wrong name and its position in the file. The
// schedules are in schedule/generators.
#pragma once

#include <string>
#include <vector>

#include "gantry/core/config.h"

namespace gantry {

struct ScheduleName {
  std::string name;
  int default_chunks = 1;
};

const std::vector<ScheduleName>& schedule_names();

// Default number of chunks per rank: two for schedules that pass through the ranks in both directions, else one.
int default_chunks(const std::string& schedule);

// True for a schedule that is read from a file, which defines its own chunks.
bool is_schedule_file(const std::string& name);

// The configured number of chunks, at least the schedule's default.
int chunks_of(const ScheduleOptions& schedule);

}  // namespace gantry
