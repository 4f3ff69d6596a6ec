#include "gantry/planner/builtin_clusters.h"

namespace gantry::planner {
namespace {

constexpr double kTera = 1e12, kGiga = 1e9, kMicro = 1e-6, kGibi = 1024.0 * 1024 * 1024;

// Dense peaks, memory and links as their makers state them; what is reached of them is that of large operations.
Device a100() {
  return {.memory_bytes = 80 * kGibi,
          .matrix_flops = {{"bfloat16", 312 * kTera},
                           {"float16", 312 * kTera},
                           {"float32", 19.5 * kTera},
                           {"float64", 19.5 * kTera}},
          .matrix_efficiency = 0.8,
          .matrix_half_flops = 0.06 * kGiga,
          .attention_efficiency = 0.55,
          .memory_bytes_per_second = 2039 * kGiga,
          .memory_efficiency = 0.85,
          .operation_seconds = 8 * kMicro};
}

Device hopper(double memory, double bandwidth) {
  Device device = a100();
  device.memory_bytes = memory;
  device.matrix_flops = {
      {"bfloat16", 989.4 * kTera}, {"float16", 989.4 * kTera}, {"float32", 67 * kTera}, {"float64", 67 * kTera}};
  device.matrix_efficiency = 0.7;
  device.matrix_half_flops = 0.2 * kGiga;
  device.attention_efficiency = 0.5;
  device.memory_bytes_per_second = bandwidth;
  return device;
}

Device b200_device() {
  Device device = hopper(180 * kGibi, 8000 * kGiga);
  device.matrix_flops = {
      {"bfloat16", 2250 * kTera}, {"float16", 2250 * kTera}, {"float32", 80 * kTera}, {"float64", 40 * kTera}};
  return device;
}

Link link(double gigabytes, double latency, double call) {
  return {.bytes_per_second = gigabytes * kGiga, .latency_seconds = latency * kMicro, .call_seconds = call * kMicro};
}

Cluster cluster(const char* name, const Device& device, const Link& within, const Link& between) {
  return {.name = name,
          .device = device,
          .per_host = 8,
          .within = within,
          .between = between,
          .overlap_slowdown = 1.1,
          .step_seconds = 5e-3};
}

// NVIDIA's Selene, by the layer times of arXiv 2205.05198's Table 4 and four of ten rows of arXiv 2104.04473's Table 1.
Cluster selene() {
  Device device = a100();
  device.matrix_efficiency = 0.705;
  device.memory_efficiency = 0.88;
  device.operation_seconds = 10 * kMicro;
  return cluster("selene_a100", device, link(230, 4.4, 30), link(13.5, 10, 30));
}

// By a random quarter of vTrain's measured steps (arXiv 2312.12391), whose programs start operations slowly; latency
// and call between hosts, which one row alone would determine, as a100_80g has them.
Cluster vtrain() {
  Device device = a100();
  device.matrix_efficiency = 0.89;
  device.memory_efficiency = 0.511;
  device.operation_seconds = 53.6 * kMicro;
  Cluster fitted = cluster("vtrain_a100", device, link(230, 4.4, 88.9), link(13.9, 8, 30));
  fitted.step_seconds = 1e-3;
  return fitted;
}

}  // namespace

const std::vector<Cluster>& builtin_clusters() {
  static const std::vector<Cluster> all = {
      cluster("a100_80g", a100(), link(230, 4, 20), link(20, 8, 30)),
      cluster("h100_80g", hopper(80 * kGibi, 3350 * kGiga), link(360, 3, 15), link(40, 8, 25)),
      cluster("h200", hopper(141 * kGibi, 4800 * kGiga), link(360, 3, 15), link(40, 8, 25)),
      cluster("b200", b200_device(), link(700, 3, 15), link(40, 8, 25)),
      selene(),
      vtrain()};
  return all;
}

}  // namespace gantry::planner
