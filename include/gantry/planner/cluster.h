// The performance of a cluster in physical units: devices, and the links between them by level. Input of cost
// estimates.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace gantry::planner {

// The performance of a device. Rates of large operations without interference are given as a peak rate and the fraction
// of it that they reach.
struct Device {
  double memory_bytes = 0;
  std::map<std::string, double> matrix_flops;  // peak FLOP/s by precision
  double matrix_efficiency = 0.8;              // fraction of the peak for a large matrix multiplication
  double matrix_half_flops = 0;                // a matrix multiplication with this number of FLOPs reaches half of that
  double attention_efficiency = 0.5;           // fraction of the peak for a fused attention core
  double memory_bytes_per_second = 0;          // peak memory bandwidth
  double memory_efficiency = 0.8;              // fraction of the peak bandwidth for element-wise operations
  // The same for slower operations: layer_norm, rms_norm, loss, and activations by their names in
  // nn::activation_names().
  std::map<std::string, double> operation_efficiency;
  double optimizer_efficiency = 0;  // the same for the optimizer; 0: equal to memory_efficiency
  double operation_seconds = 0;     // minimum time between the starts of two operations
};

// A link. A collective of n ranks takes call_seconds, latency_seconds for each step of a ring, and the time of its
// bytes.
struct Link {
  double bytes_per_second = 0;  // send rate of a rank that receives at the same rate
  double latency_seconds = 0;   // per step
  double call_seconds = 0;      // per call, independent of its size
};

// A cluster of equal hosts with equal devices.
struct Cluster {
  std::string name;
  Device device;
  int hosts = 1, per_host = 1;  // per_host: devices per host
  Link within, between;         // between: a device's share of its host's network
  double overlap_slowdown = 1;  // factor for the time of computation that overlaps with a collective
  // Factor for the time of computation between collectives, because ranks wait for the slowest one.
  double meeting_slowdown = 1;
  double step_seconds = 0;  // additional time per step: data, logging, small operations of the optimizer

  int ranks() const { return hosts * per_host; }
};

// The names of the built-in clusters.
std::vector<std::string> builtin_cluster_names();
bool is_builtin_cluster(const std::string& name);

// Returns the cluster with `ranks` devices: whole hosts, or a part of one. Throws ConfigError if that is not possible.
Cluster part_of(const Cluster& cluster, int ranks);

// The same, but also throws ConfigError if the cluster has fewer devices, unless `grows`: then it can have any number
// of hosts, like the built-in clusters.
Cluster with_ranks(const Cluster& cluster, int ranks, bool grows);

// Loads a built-in cluster by name, or a YAML file with the keys in docs/planner.md; a path contains '/' or ends with
// .yaml. Throws ConfigError for an unknown name, with the most similar one, and for a key that is missing, unknown or
// invalid.
Cluster load_cluster(const std::string& name_or_path);
Cluster parse_cluster(const std::string& text, const std::string& name);
// Returns YAML that parse_cluster() reads.
std::string to_yaml(const Cluster& cluster);

}  // namespace gantry::planner
