// The names of the schedules that a configuration may ask for, so that a wrong one is found with its place in the file.
// schedule/generators makes them.
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

// Chunks per rank where the configuration does not say: two for schedules that go forth and back, else one.
int default_chunks(const std::string& schedule);

// True for a schedule that is read from a file, which says its own chunks.
bool is_schedule_file(const std::string& name);

// The chunks that are asked for, at least the schedule's own number.
int chunks_of(const ScheduleConfig& schedule);

}  // namespace gantry
