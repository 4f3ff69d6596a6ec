// A job on threads of this process whose failure is a value: for callers that go on after it.
#pragma once

#include <functional>
#include <optional>

#include "gantry/launch/backends.h"

namespace gantry {

// launch() on the local backend, on config.ranks() threads, whatever started this process. What failed is returned
// instead of printed: the first cause, with its rank where there are several. No operations are recorded. Where a rank
// does not end within the grace time the failure is printed and the process ends, as in launch(). UsageError within a
// rank of a launch.
std::optional<Failure> launch_quietly(const Config& config, const std::function<void(World&)>& body);

// A rank's part of a launch, in a world that somebody else has made: `body`, whose operations are recorded, and within
// which a further launch is refused.
void run_rank(World& world, const std::function<void(World&)>& body);

}  // namespace gantry
