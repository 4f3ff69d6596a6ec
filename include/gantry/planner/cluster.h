// What a cluster can do, in physical units: devices, and the links between them by level. Costs are estimated from it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace gantry::planner {

// Rates are what large operations reach when nothing disturbs them: a peak, and the share of it that they get.
struct Device {
  double memory_bytes = 0;
  std::map<std::string, double> matrix_flops;  // a second, at the peak, by precision
  double matrix_efficiency = 0.8;              // of the peak, that a large product gets
  double matrix_half_flops = 0;                // a product of so many operations gets half of that
  double attention_efficiency = 0.5;           // of the peak, that a fused attention core gets
  double memory_bytes_per_second = 0;          // at the peak
  double memory_efficiency = 0.8;              // of the peak, that element-wise operations get
  // Likewise, of what is slower: layer_norm, rms_norm, loss, and activations by their names in nn::activation_names().
  std::map<std::string, double> operation_efficiency;
  double optimizer_efficiency = 0;  // likewise, that the optimizer gets; 0: as memory_efficiency
  double operation_seconds = 0;     // the least time from one operation's start to the next one's
};

// A collective of n ranks over it: call_seconds, then a ring's steps of latency_seconds and its bytes.
struct Link {
  double bytes_per_second = 0;  // that a rank sends while it receives as much
  double latency_seconds = 0;   // of a step
  double call_seconds = 0;      // of a call, whatever its size
};

struct Cluster {
  std::string name;
  Device device;
  int hosts = 1, per_host = 1;  // devices of a host
  Link within, between;         // between: each device's share of its host's network
  double overlap_slowdown = 1;  // of computation while a collective runs beside it
  double meeting_slowdown = 1;  // of computation between collectives that ranks wait for: by the slowest of them
  double step_seconds = 0;      // of a step besides: data, logging, the optimizer's many small operations

  int ranks() const { return hosts * per_host; }
};

std::vector<std::string> builtin_cluster_names();
bool is_builtin_cluster(const std::string& name);

// Whole hosts of the cluster, or a part of one, with so many devices. ConfigError where they are no whole hosts.
Cluster part_of(const Cluster& cluster, int ranks);

// The same where the cluster has so many at all. `grows`: it stands for any number of its hosts, as built-in ones do.
// ConfigError.
Cluster with_ranks(const Cluster& cluster, int ranks, bool grows);

// A built-in cluster by name, or one of a YAML file, whose keys docs/planner.md has; a path has a '/' or ends with
// .yaml. ConfigError for an unknown name, naming the nearest, and for a key that is missing, unknown or no such number.
Cluster load_cluster(const std::string& name_or_path);
Cluster parse_cluster(const std::string& text, const std::string& name);
// As parse_cluster() reads it.
std::string to_yaml(const Cluster& cluster);

}  // namespace gantry::planner
