// A job on threads of this process that returns its failure, for callers that continue after it.
#pragma once

#include <functional>
#include <optional>

#include "gantry/launch/backends.h"

namespace gantry {

// Does the same as launch() on the local backend, with config.ranks() threads, whatever launcher started this
// process. A failure is returned instead of printed: the first cause, with its rank if there are several
// ranks. No operations are recorded. If a rank does not end within the grace time, the failure is printed and
// the process ends, as in launch(). Throws UsageError within a rank of a launch.
std::optional<Failure> launch_quietly(const Config& config, const std::function<void(World&)>& body);

// Runs one rank of a launch in a world that the caller has made. The operations of `body` are recorded, and
// launch() within it is rejected.
void run_rank(World& world, const std::function<void(World&)>& body);

}  // namespace gantry
