// Times of what ranks do, measured on all of them at once: what one computes, the others compute too, as in training.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "gantry/comm/process_group_mesh.h"
#include "gantry/planner/cluster.h"

namespace gantry::cli {

// Told before each measurement which of how many it is.
using MeasureProgress = std::function<void(int done, int all)>;

// Seconds of one call: the median of rounds, each begun together, of the slowest rank. Collective over `world`.
// `call` may be collective; on a device a round ends when the device is done.
double seconds_of(World& world, ProcessGroup& ranks, const std::function<void()>& call);

// What the ranks' devices do: matrix products by precision and size, attention's core, memory, small operations.
// memory_bytes is the rank's share of its host's, or its device's. Collective over the mesh.
planner::Device measure_device(World& world, ProcessGroupMesh& mesh, int ranks_of_host,
                               const MeasureProgress& progress);
inline constexpr int kDeviceMeasurements = 6;

// The rates of memory, of element-wise operations by name, and of the optimizer. Collective over `ranks`.
void measure_memory(World& world, ProcessGroup& ranks, planner::Device& device);

// Collectives by size of tensor and group, over hosts' own ranks and between hosts. `between` is `within` where all
// ranks are of one host. Of one rank there are none: both are then the memory's rate.
struct MeasuredLinks {
  planner::Link within, between;
  double overlap_slowdown = 1, meeting_slowdown = 1;
};
MeasuredLinks measure_links(World& world, ProcessGroupMesh& mesh, int ranks_of_host, double memory_rate,
                            const MeasureProgress& progress);
inline constexpr int kLinkMeasurements = 4;

}  // namespace gantry::cli
