// Clusters: those with built-in names, and the YAML files that describe one.
#include "gantry/planner/cluster.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fstream>
#include <iterator>
#include <limits>

#include "gantry/core/config/config_reader.h"
#include "gantry/core/error.h"
#include "gantry/core/io/readable_file.h"
#include "gantry/core/io/yaml_document.h"
#include "gantry/nn/activation_names.h"

namespace gantry::planner {
namespace {

constexpr double kAny = std::numeric_limits<double>::infinity();
constexpr double kTera = 1e12, kGiga = 1e9, kMilli = 1e-3, kMicro = 1e-6;
constexpr double kGibi = 1024.0 * 1024 * 1024;

// Dense peaks, memory and links are the vendors' numbers. Efficiencies are those of large operations.
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

Link builtin_link(double gigabytes, double latency, double call) {
  return {.bytes_per_second = gigabytes * kGiga, .latency_seconds = latency * kMicro, .call_seconds = call * kMicro};
}

Cluster builtin_cluster(const char* name, const Device& device, const Link& within, const Link& between) {
  return {.name = name,
          .device = device,
          .per_host = 8,
          .within = within,
          .between = between,
          .overlap_slowdown = 1.1,
          .step_seconds = 5e-3};
}

// NVIDIA's Selene, fitted to the layer times in Table 4 of arXiv 2205.05198 and to four of the ten rows in Table 1 of
// arXiv 2104.04473.
Cluster selene() {
  Device device = a100();
  device.matrix_efficiency = 0.705;
  device.memory_efficiency = 0.88;
  device.operation_seconds = 10 * kMicro;
  return builtin_cluster("selene_a100", device, builtin_link(230, 4.4, 30), builtin_link(13.5, 10, 30));
}

// Fitted to a random quarter of vTrain's measured steps (arXiv 2312.12391), whose programs start operations slowly.
// Latency and call time between hosts are those of a100_80g, because a single row would determine them.
Cluster vtrain() {
  Device device = a100();
  device.matrix_efficiency = 0.89;
  device.memory_efficiency = 0.511;
  device.operation_seconds = 53.6 * kMicro;
  Cluster fitted = builtin_cluster("vtrain_a100", device, builtin_link(230, 4.4, 88.9), builtin_link(13.9, 8, 30));
  fitted.step_seconds = 1e-3;
  return fitted;
}

const std::vector<Cluster>& builtin_clusters() {
  static const std::vector<Cluster> all = {
      builtin_cluster("a100_80g", a100(), builtin_link(230, 4, 20), builtin_link(20, 8, 30)),
      builtin_cluster("h100_80g", hopper(80 * kGibi, 3350 * kGiga), builtin_link(360, 3, 15), builtin_link(40, 8, 25)),
      builtin_cluster("h200", hopper(141 * kGibi, 4800 * kGiga), builtin_link(360, 3, 15), builtin_link(40, 8, 25)),
      builtin_cluster("b200", b200_device(), builtin_link(700, 3, 15), builtin_link(40, 8, 25)),
      selene(),
      vtrain()};
  return all;
}

// A required number above 0, in units of `unit`.
double required_number(ConfigSection& section, const std::string& key, double unit) {
  double value = 1;
  if (!section.has(key)) section.fault(key, "the key is missing", "a number above 0", "");
  section.number(key, value, 0, kAny, /*open_below=*/true);
  return value * unit;
}

// An optional number of at least 0.
void optional_number(ConfigSection& section, const std::string& key, double unit, double& value) {
  double read = value / unit;
  section.number(key, read, 0, kAny);
  value = read * unit;
}

// A fraction of a peak.
void read_efficiency(ConfigSection& section, const std::string& key, double& value) {
  section.number(key, value, 0, kAny, /*open_below=*/true);
  if (value > 1)
    section.fault(key, fmt::format("{} is above the peak", value), "a fraction of the peak, at most 1", "");
}

std::map<std::string, double> read_rates(ConfigSection section) {
  std::map<std::string, double> rates;
  for (const char* precision : {"bfloat16", "float16", "float32", "float64"})
    if (section.has(precision)) rates[precision] = required_number(section, precision, kTera);
  section.finish();
  return rates;
}

std::map<std::string, double> read_efficiencies(ConfigSection section) {
  std::map<std::string, double> shares;
  std::vector<std::string> names = nn::activation_names();
  names.insert(names.end(), {"layer_norm", "rms_norm", "loss"});
  for (const std::string& name : names)
    if (section.has(name)) read_efficiency(section, name, shares[name]);
  section.finish();
  return shares;
}

Device read_device(ConfigFaults& faults, ConfigSection section) {
  Device device;
  device.memory_bytes = required_number(section, "memory_gib", kGibi);
  if (!section.has("matrix_tflops")) section.fault("matrix_tflops", "the key is missing", "rates by precision", "");
  device.matrix_flops = read_rates({faults, "device.matrix_tflops", section.node("matrix_tflops")});
  read_efficiency(section, "matrix_efficiency", device.matrix_efficiency);
  optional_number(section, "matrix_half_gflop", kGiga, device.matrix_half_flops);
  read_efficiency(section, "attention_efficiency", device.attention_efficiency);
  device.memory_bytes_per_second = required_number(section, "memory_gb_per_second", kGiga);
  read_efficiency(section, "memory_efficiency", device.memory_efficiency);
  device.operation_efficiency =
      read_efficiencies({faults, "device.operation_efficiency", section.node("operation_efficiency")});
  if (section.has("optimizer_efficiency"))
    read_efficiency(section, "optimizer_efficiency", device.optimizer_efficiency);
  optional_number(section, "operation_us", kMicro, device.operation_seconds);
  section.finish();
  return device;
}

Link read_link(ConfigSection section) {
  Link link;
  link.bytes_per_second = required_number(section, "gb_per_second", kGiga);
  optional_number(section, "latency_us", kMicro, link.latency_seconds);
  optional_number(section, "call_us", kMicro, link.call_seconds);
  section.finish();
  return link;
}

std::string link_text(const Link& link) {
  return fmt::format("{{gb_per_second: {:.10g}, latency_us: {:.10g}, call_us: {:.10g}}}", link.bytes_per_second / kGiga,
                     link.latency_seconds / kMicro, link.call_seconds / kMicro);
}

// "{float32: 19.5, float64: 9.7}".
std::string values_text(const std::map<std::string, double>& values, double unit) {
  std::string text;
  for (const auto& [name, value] : values)
    text += fmt::format("{}{}: {:.10g}", text.empty() ? "" : ", ", name, value / unit);
  return "{" + text + "}";
}

// The optional efficiencies that the device sets.
std::string own_efficiencies_text(const Device& device) {
  std::string text;
  if (!device.operation_efficiency.empty())
    text += "  operation_efficiency: " + values_text(device.operation_efficiency, 1) + "\n";
  if (device.optimizer_efficiency > 0)
    text += fmt::format("  optimizer_efficiency: {:.10g}\n", device.optimizer_efficiency);
  return text;
}

}  // namespace

Cluster parse_cluster(const std::string& text, const std::string& name) {
  ConfigFaults faults{.file = name, .overridden = {}, .lines = {}};
  ConfigSection root(faults, "", parse_yaml(text, name));
  Cluster cluster;
  cluster.name = name;
  root.text("name", cluster.name);
  root.integer("hosts", cluster.hosts, 1, 1'000'000);
  root.integer("per_host", cluster.per_host, 1, 1024);
  cluster.device = read_device(faults, {faults, "device", root.node("device")});
  cluster.within = read_link({faults, "within", root.node("within")});
  const YAML::Node between = root.node("between");
  cluster.between = between.IsDefined() ? read_link({faults, "between", between}) : cluster.within;
  root.number("overlap_slowdown", cluster.overlap_slowdown, 1, 10);
  root.number("meeting_slowdown", cluster.meeting_slowdown, 1, 10);
  optional_number(root, "step_ms", kMilli, cluster.step_seconds);
  root.finish();
  if (!faults.lines.empty()) throw ConfigError(faults.joined());
  return cluster;
}

std::string to_yaml(const Cluster& cluster) {
  const Device& device = cluster.device;
  return fmt::format("name: {}\nhosts: {}\nper_host: {}\ndevice:\n", cluster.name, cluster.hosts, cluster.per_host) +
         fmt::format(
             "  memory_gib: {:.10g}\n  matrix_tflops: {}\n  matrix_efficiency: {:.10g}\n  matrix_half_gflop: "
             "{:.10g}\n",
             device.memory_bytes / kGibi, values_text(device.matrix_flops, kTera), device.matrix_efficiency,
             device.matrix_half_flops / kGiga) +
         fmt::format("  attention_efficiency: {:.10g}\n  memory_gb_per_second: {:.10g}\n  memory_efficiency: {:.10g}\n",
                     device.attention_efficiency, device.memory_bytes_per_second / kGiga, device.memory_efficiency) +
         own_efficiencies_text(device) +
         fmt::format("  operation_us: {:.10g}\nwithin: {}\nbetween: {}\noverlap_slowdown: {:.10g}\n",
                     device.operation_seconds / kMicro, link_text(cluster.within), link_text(cluster.between),
                     cluster.overlap_slowdown) +
         (cluster.meeting_slowdown > 1 ? fmt::format("meeting_slowdown: {:.10g}\n", cluster.meeting_slowdown) : "") +
         fmt::format("step_ms: {:.10g}\n", cluster.step_seconds / kMilli);
}

std::vector<std::string> builtin_cluster_names() {
  std::vector<std::string> names;
  for (const Cluster& known : builtin_clusters()) names.push_back(known.name);
  return names;
}

bool is_builtin_cluster(const std::string& name) {
  return std::ranges::any_of(builtin_clusters(), [&](const Cluster& known) { return known.name == name; });
}

Cluster part_of(const Cluster& cluster, int ranks) {
  Cluster part = cluster;
  part.per_host = std::min(ranks, cluster.per_host);
  part.hosts = ranks / part.per_host;
  if (part.ranks() != ranks)
    throw ConfigError({"cluster " + cluster.name,
                       fmt::format("{} ranks do not fill hosts of {} devices", ranks, cluster.per_host),
                       fmt::format("a multiple of {}", cluster.per_host), "set a different --ranks or --per-host"});
  return part;
}

Cluster with_ranks(const Cluster& cluster, int ranks, bool grows) {
  if (!grows && ranks > cluster.ranks())
    throw ConfigError(
        {"cluster " + cluster.name,
         fmt::format("{} hosts of {} devices are fewer than {} ranks", cluster.hosts, cluster.per_host, ranks),
         fmt::format("at most {} ranks", cluster.ranks()), "raise --hosts"});
  return part_of(cluster, ranks);
}

Cluster load_cluster(const std::string& name_or_path) {
  for (const Cluster& known : builtin_clusters())
    if (known.name == name_or_path) return known;
  if (name_or_path.find('/') == std::string::npos && !name_or_path.ends_with(".yaml")) {
    const auto names = builtin_cluster_names();
    const std::string near = nearest_name(name_or_path, names);
    throw ConfigError({"cluster", "the name '" + name_or_path + "' is not known",
                       fmt::format("one of {}, or a FILE.yaml", fmt::join(names, ", ")),
                       near.empty() ? "" : "did you mean '" + near + "'?"});
  }
  std::ifstream file = open_for_reading(name_or_path);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file) throw ConfigError({name_or_path, "the file cannot be read", "a cluster file", "check the path"});
  return parse_cluster(text, name_or_path);
}

}  // namespace gantry::planner
