// Searches for the best layouts of a model on a cluster, out of all values of the open keys.
//
// Every layout has a lower bound for the step time of all its schedules (least_seconds()): the work of the longest
// rank, its waits at start and end, and work that is done once. Layouts with the same sizes also have a common lower
// bound. The search is a branch and bound: it fixes open keys step by step in the order of these bounds, and simulates
// layouts, until the next bound exceeds the slowest layout in the result. The remaining layouts cannot be better.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gantry/planner/cluster.h"
#include "gantry/planner/config.h"
#include "gantry/planner/estimate.h"

namespace gantry::planner {

struct PlannedLayout {
  Layout layout;
  Estimate estimate;
};

// The result of search(), with statistics.
struct SearchResult {
  std::vector<PlannedLayout> best;       // layouts that fit into memory, the fastest first
  std::optional<PlannedLayout> nearest;  // if none fits: the one that needs the least memory
  std::string objection;                 // if there is none at all: why the last tried layout is not possible
  long long layouts = 0;                 // number of possible layouts of the open keys
  long long too_large = 0;               // number of these that do not fit into memory
  long long bounded = 0;                 // number of computed bounds, of single layouts and of groups
  long long estimated = 0;               // number of simulations: layouts that differ only in memory state share one
};

// Options of search().
struct SearchOptions {
  int top = 10;
  bool prunes = true;  // false: estimate every layout, to verify the bounds
};

// Searches the best layouts. The values of open keys are:
//
//   tensor             divisors of the devices per host, at most the number of heads
//   pipeline           divisors of the ranks, at most the number of layers
//   data               the remaining ranks, if they divide the batch
//   context, expert    divisors of their ranks
//   microbatch size    1, 2, 4, ... samples
//   schedule           those of plan_schedules(), with 2 to 8 chunks if they support any number
//   sequence_parallel  true if tensor is above 1
//   zero               0 to 3 if there are replicas
//   shard, gather      with zero 3: over all replicas or within a host, and all modes of gathering
//   recompute          all modes
SearchResult search(const PlanRequest& request, const Cluster& cluster, const SearchOptions& options = {});

// Throws ConfigError if the search found nothing, with why_none() and a remedy: a key to leave open, or more hosts.
void require_layouts(const SearchResult& found, const PlanRequest& request, const Cluster& cluster);
// For a search that found nothing: returns the missing memory of the nearest layout, or the sizes that are
// incompatible.
std::string why_none(const SearchResult& found, const PlanRequest& request, const Cluster& cluster);
// For a layout that does not fit: returns the memory that it needs and the excess.
std::string shortfall(const PlannedLayout& layout, const Cluster& cluster);

// Returns 1f1b, interleaved_1f1b, zb_h1, zb_h2 and dualpipe_v. Schedules that need a search of their own are too slow
// to try in large numbers; set them in the file.
const std::vector<std::string>& plan_schedules();

}  // namespace gantry::planner
