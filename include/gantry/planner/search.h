// The best layouts of a model on a cluster, among all that a configuration leaves open.
//
// Every layout has a time that none of its schedules can beat (least_seconds()): the longest rank's work, what it waits
// for at its start and end, and what comes once; and layouts of the same sizes have one that none of them can. What is
// left open is settled step by step in the order of these bounds, and layouts are estimated by their simulated
// schedules, until the next bound is above the slowest that is kept: those left can't be better.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gantry/planner/cluster.h"
#include "gantry/planner/configured.h"
#include "gantry/planner/estimate.h"

namespace gantry::planner {

struct PlannedLayout {
  Layout layout;
  Estimate estimate;
};

struct SearchResult {
  std::vector<PlannedLayout> best;       // that fit, the fastest first
  std::optional<PlannedLayout> nearest;  // where none fits: the one that needs the least memory
  std::string objection;                 // where there is none: what the last one tried lacks
  long long layouts = 0;                 // that the open keys have, of sizes that fit each other
  long long too_large = 0;               // of those, that were seen not to be in memory
  long long bounded = 0;                 // bounds that were computed: of single layouts, and of many at once
  long long estimated = 0;               // simulations: layouts that differ in states alone share one
};

struct SearchOptions {
  int top = 10;
  bool prunes = true;  // false: every layout is estimated, to check the bounds
};

// Sizes of open keys: tensor divides a host's devices and is at most the heads; pipeline divides the ranks and is at
// most the layers; data takes the rest and divides the batch; context and expert divide what they are of; microbatches
// of 1, 2, 4, ... samples; the schedules of plan_schedules(), 2 to 8 chunks where they have any number; sequence
// parallelism wherever tensor is above 1; zero 0 to 3 where there are replicas, and shards over all of them or one
// host's, gathered in each way; every recomputation.
SearchResult search(const PlanRequest& request, const Cluster& cluster, const SearchOptions& options = {});

// ConfigError where nothing was found: why_none(), and what would do: one stated key open, or more hosts.
void require_layouts(const SearchResult& found, const PlanRequest& request, const Cluster& cluster);
// Of a search that found nothing: what the nearest layout lacks, or which sizes don't fit each other.
std::string why_none(const SearchResult& found, const PlanRequest& request, const Cluster& cluster);
// Of a layout that does not fit: what it needs, and how much that is too much.
std::string shortfall(const PlannedLayout& layout, const Cluster& cluster);

// 1f1b, interleaved_1f1b, zb_h1, zb_h2 and dualpipe_v. Schedules that are searched for take too long to be tried by the
// hundred: a file may name one.
const std::vector<std::string>& plan_schedules();

}  // namespace gantry::planner
