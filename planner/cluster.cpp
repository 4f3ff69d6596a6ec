#include "gantry/planner/cluster.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fstream>
#include <iterator>
#include <limits>

#include "gantry/core/config_reader.h"
#include "gantry/core/error.h"
#include "gantry/core/yaml_document.h"
#include "gantry/nn/activation_names.h"
#include "gantry/planner/builtin_clusters.h"

namespace gantry::planner {
namespace {

constexpr double kAny = std::numeric_limits<double>::infinity();
constexpr double kGiga = 1e9, kTera = 1e12, kMicro = 1e-6, kMilli = 1e-3;
constexpr double kGibi = 1024.0 * 1024 * 1024;

// A number above 0 that has to be there, in units of `unit`.
double needed(ConfigSection& section, const std::string& key, double unit) {
  double value = 1;
  if (!section.has(key)) section.fault(key, "is missing", "a number above 0", "");
  section.number(key, value, 0, kAny, /*open_below=*/true);
  return value * unit;
}

// One that need not, of at least 0.
void optional_number(ConfigSection& section, const std::string& key, double unit, double& value) {
  double read = value / unit;
  section.number(key, read, 0, kAny);
  value = read * unit;
}

// A share of a peak.
void share(ConfigSection& section, const std::string& key, double& value) {
  section.number(key, value, 0, kAny, /*open_below=*/true);
  if (value > 1) section.fault(key, fmt::format("is {}", value), "a share of the peak, at most 1", "");
}

std::map<std::string, double> read_rates(ConfigSection section) {
  std::map<std::string, double> rates;
  for (const char* precision : {"bfloat16", "float16", "float32", "float64"})
    if (section.has(precision)) rates[precision] = needed(section, precision, kTera);
  section.finish();
  return rates;
}

std::map<std::string, double> read_efficiencies(ConfigSection section) {
  std::map<std::string, double> shares;
  std::vector<std::string> names = nn::activation_names();
  names.insert(names.end(), {"layer_norm", "rms_norm", "loss"});
  for (const std::string& name : names)
    if (section.has(name)) share(section, name, shares[name]);
  section.finish();
  return shares;
}

Device read_device(ConfigFaults& faults, ConfigSection section) {
  Device device;
  device.memory_bytes = needed(section, "memory_gib", kGibi);
  if (!section.has("matrix_tflops")) section.fault("matrix_tflops", "is missing", "rates by precision", "");
  device.matrix_flops = read_rates({faults, "device.matrix_tflops", section.node("matrix_tflops")});
  share(section, "matrix_efficiency", device.matrix_efficiency);
  optional_number(section, "matrix_half_gflop", kGiga, device.matrix_half_flops);
  share(section, "attention_efficiency", device.attention_efficiency);
  device.memory_bytes_per_second = needed(section, "memory_gb_per_second", kGiga);
  share(section, "memory_efficiency", device.memory_efficiency);
  device.operation_efficiency =
      read_efficiencies({faults, "device.operation_efficiency", section.node("operation_efficiency")});
  if (section.has("optimizer_efficiency")) share(section, "optimizer_efficiency", device.optimizer_efficiency);
  optional_number(section, "operation_us", kMicro, device.operation_seconds);
  section.finish();
  return device;
}

Link read_link(ConfigSection section) {
  Link link;
  link.bytes_per_second = needed(section, "gb_per_second", kGiga);
  optional_number(section, "latency_us", kMicro, link.latency_seconds);
  optional_number(section, "call_us", kMicro, link.call_seconds);
  section.finish();
  return link;
}

std::string link_text(const Link& link) {
  return fmt::format("{{gb_per_second: {:.10g}, latency_us: {:.10g}, call_us: {:.10g}}}", link.bytes_per_second / kGiga,
                     link.latency_seconds / kMicro, link.call_seconds / kMicro);
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

namespace {

// "{float32: 19.5, float64: 9.7}".
std::string values_text(const std::map<std::string, double>& values, double unit) {
  std::string text;
  for (const auto& [name, value] : values)
    text += fmt::format("{}{}: {:.10g}", text.empty() ? "" : ", ", name, value / unit);
  return "{" + text + "}";
}

// What is left out where the cluster does not have it.
std::string own_efficiencies_text(const Device& device) {
  std::string text;
  if (!device.operation_efficiency.empty())
    text += "  operation_efficiency: " + values_text(device.operation_efficiency, 1) + "\n";
  if (device.optimizer_efficiency > 0)
    text += fmt::format("  optimizer_efficiency: {:.10g}\n", device.optimizer_efficiency);
  return text;
}

}  // namespace

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
                       fmt::format("{} ranks are no whole hosts of {} devices", ranks, cluster.per_host),
                       fmt::format("a multiple of {}", cluster.per_host), "state another --ranks or --per-host"});
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
    throw ConfigError({"cluster", "'" + name_or_path + "' is not known",
                       fmt::format("one of {}, or a FILE.yaml", fmt::join(names, ", ")),
                       near.empty() ? "" : "did you mean '" + near + "'?"});
  }
  std::ifstream file(name_or_path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file) throw ConfigError({name_or_path, "can't be read", "a cluster's file", "check the path"});
  return parse_cluster(text, name_or_path);
}

}  // namespace gantry::planner
