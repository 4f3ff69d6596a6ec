// Measures the rates of devices and links, on all ranks at the same time, because in training all ranks compute.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "gantry/booster/measure_cluster.h"
#include "gantry/comm/process_group_mesh.h"
#include "gantry/planner/cluster.h"

namespace gantry {

// Returns the seconds of one call on the slowest rank: the median of several rounds, which all ranks start together.
// Collective over `ranks`. `call` may be collective. On a device, a round ends when the device has finished.
double seconds_of(World& world, ProcessGroup& ranks, const std::function<void()>& call);

// Measures the devices of the ranks: matrix multiplications by precision and size, attention, memory, small operations.
// memory_bytes is the memory of the device, or on CPUs the rank's share of the memory of the host. Collective over the
// mesh.
planner::Device measure_device(World& world, ProcessGroupMesh& mesh, int ranks_of_host,
                               const MeasureProgress& progress);
inline constexpr int kDeviceMeasurements = 6;

// Measures the rates of memory, of element-wise operations by name, and of the optimizer. Collective over `ranks`.
void measure_memory(World& world, ProcessGroup& ranks, planner::Device& device);

// Measures collectives of several tensor and group sizes, within hosts and between hosts. With a single host, `between`
// equals `within`. With a single rank, both have the rate of the memory. Collective over the mesh.
struct MeasuredLinks {
  planner::Link within, between;
  double overlap_slowdown = 1, meeting_slowdown = 1;
};
MeasuredLinks measure_links(World& world, ProcessGroupMesh& mesh, int ranks_of_host, double memory_rate,
                            const MeasureProgress& progress);
inline constexpr int kLinkMeasurements = 4;

}  // namespace gantry
