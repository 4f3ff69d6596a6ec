// Chains and cycles among the ranks that wait for each other.
#pragma once

#include <vector>

#include "gantry/diagnosis/waits.h"

namespace gantry::recorder {

// One rank waits for another.
struct Link {
  const Blocked* blocked = nullptr;
  Awaited awaited;
};
using Chain = std::vector<Link>;  // each link's awaited rank is the next one's blocked rank

// From each blocked rank the shortest ways to those at whom the waiting ends: ranks that are not blocked themselves.
std::vector<Chain> chains_of(const Waits& waits);

// Ranks that all wait for the next one, the last for the first; empty if there are none. None of them goes on, whatever
// others do.
Chain cycle_of(const Waits& waits);

}  // namespace gantry::recorder
