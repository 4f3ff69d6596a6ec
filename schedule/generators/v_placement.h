// For schedules whose two chunks a rank go forth and back: rank r has stages r and 2 * ranks - 1 - r.
#pragma once

#include "gantry/schedule/generators/generator.h"

namespace gantry::schedule {

// Rows are empty. ConfigError unless there are two chunks.
Schedule empty_v_schedule(const std::string& name, const PipelineSizes& sizes);

}  // namespace gantry::schedule
