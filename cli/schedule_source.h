// The schedule that `gantry schedule` is asked about: made by name, read from a file, or a configuration's.
#pragma once

#include "gantry/cli/schedule_options.h"
#include "gantry/schedule/schedule.h"

namespace gantry::cli {

bool is_schedule_csv(const std::string& source);

// Where the source is a configuration: what that says in place of flags. UsageError for flags beside it.
void take_config(ScheduleOptions& options);

// As it stands in its file, or is made. UsageError for sizes that are missing or contradict the file; ConfigError as of
// schedule::load_csv() and schedule::generate().
schedule::Schedule named_schedule(const ScheduleOptions& options);
// Validated, with the gathers and moves that the flags ask for.
schedule::Schedule valid_schedule(const ScheduleOptions& options);

}  // namespace gantry::cli
