#include "gantry/booster/measure_cluster.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "gantry/booster/measure_rates.h"
#include "gantry/core/error.h"
#include "gantry/core/host/this_host.h"

namespace gantry {
namespace {

constexpr int kMeasurements = kDeviceMeasurements + kLinkMeasurements;

// Returns the number of ranks on each host. Throws ConfigError unless it is the same on all hosts and the ranks of each
// host are consecutive, because a cluster file cannot describe other placements. Collective over the world.
int ranks_of_each_host(World& world, ProcessGroup& ranks) {
  const auto names = gather_texts(ranks, host_name());
  std::string fault;
  std::int64_t each = 0;
  if (world.is_main()) {
    each = std::ranges::count(names, names.front());
    for (std::size_t rank = 0; rank < names.size(); ++rank)
      if (names[rank] != names[rank / static_cast<std::size_t>(each) * static_cast<std::size_t>(each)])
        fault = fmt::format("rank {} is on {}, but {} ranks are on {}", rank, names[rank], each, names.front());
  }
  fault = broadcast_text(ranks, fault, 0);
  if (!fault.empty())
    throw ConfigError({"measuring the cluster", fault,
                       "the same number of ranks on each host, in the order of the hosts",
                       "start it with mpirun --map-by ppr:N:node"});
  return static_cast<int>(all_reduce_number(ranks, static_cast<double>(each)));
}

double rounded(double value) {
  if (value <= 0) return 0;
  const double unit = std::pow(10, std::floor(std::log10(value)) - 3);
  return std::round(value / unit) * unit;
}

void round_all(planner::Cluster& cluster) {
  planner::Device& device = cluster.device;
  for (auto& [precision, flops] : device.matrix_flops) flops = rounded(flops);
  for (double* value :
       {&device.memory_bytes, &device.matrix_efficiency, &device.matrix_half_flops, &device.attention_efficiency,
        &device.memory_bytes_per_second, &device.memory_efficiency, &device.optimizer_efficiency,
        &device.operation_seconds, &cluster.overlap_slowdown, &cluster.meeting_slowdown})
    *value = rounded(*value);
  for (auto& [name, share] : device.operation_efficiency) share = rounded(share);
  for (planner::Link* link : {&cluster.within, &cluster.between})
    for (double* value : {&link->bytes_per_second, &link->latency_seconds, &link->call_seconds})
      *value = rounded(*value);
}

}  // namespace

planner::Cluster measure_cluster(World& world, const MeasureProgress& progress) {
  ProcessGroupMesh mesh(world);
  const auto from = [&](int before) -> MeasureProgress {
    return [&progress, before](int done, int) {
      if (progress) progress(before + done, kMeasurements);
    };
  };
  planner::Cluster cluster;
  cluster.name = host_name();
  cluster.per_host = ranks_of_each_host(world, mesh.world_group());
  cluster.hosts = world.size() / cluster.per_host;
  cluster.device = measure_device(world, mesh, cluster.per_host, from(0));
  const MeasuredLinks links =
      measure_links(world, mesh, cluster.per_host, cluster.device.memory_bytes_per_second, from(kDeviceMeasurements));
  cluster.within = links.within;
  cluster.between = links.between;
  cluster.overlap_slowdown = links.overlap_slowdown;
  cluster.meeting_slowdown = links.meeting_slowdown;
  round_all(cluster);
  return cluster;
}

}  // namespace gantry
