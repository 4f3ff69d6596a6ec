// What `gantry schedule` lets actions cost, as its flags say: F,I,W,COMM and further ones.
#pragma once

#include "gantry/cli/schedule_options.h"
#include "gantry/schedule/schedule.h"
#include "gantry/schedule/simulate.h"

namespace gantry::cli {

// Of computations and hops; a configuration's own where no flag states any. UsageError for what is no time.
schedule::Costs stated_times(const ScheduleOptions& options);

// To those, what gathers and moves take, where `of` has any. UsageError where there are times of another number of
// stages than it has.
void add_extra_times(schedule::Costs& costs, const schedule::Schedule& of, const ScheduleOptions& options);

}  // namespace gantry::cli
