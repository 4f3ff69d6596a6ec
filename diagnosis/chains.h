// Chains and cycles of ranks that wait for each other.
#pragma once

#include <vector>

#include "gantry/diagnosis/waits.h"

namespace gantry::recorder {

// One rank waits for another rank.
struct Link {
  const Blocked* blocked = nullptr;
  Awaited awaited;
};
using Chain = std::vector<Link>;  // the awaited rank of each link is the blocked rank of the next one

// The shortest chains from each blocked rank to the ranks that are not blocked themselves, where the waiting ends.
std::vector<Chain> chains_of(const Waits& waits);

// Ranks that all wait for the next one, and the last for the first; empty if there is no cycle. None of them can
// continue, whatever the other ranks do.
Chain cycle_of(const Waits& waits);

}  // namespace gantry::recorder
