// Clusters as files, and the times of collectives over their links.
#include "gantry/planner/cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gantry/core/error.h"
#include "gantry/planner/collectives.h"

namespace gantry::planner {
namespace {

using ::testing::HasSubstr;

std::string refusal_of(const std::string& text) {
  try {
    parse_cluster(text, "c.yaml");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

constexpr const char* kSmall =
    "per_host: 4\nhosts: 2\ndevice: {memory_gib: 16, matrix_tflops: {bfloat16: 100}, memory_gb_per_second: 1000}\n"
    "within: {gb_per_second: 100, latency_us: 2, call_us: 10}\nbetween: {gb_per_second: 10, latency_us: 5}\n";

TEST(Clusters, BuiltInOnesAreFilesToo) {
  for (const auto& name : builtin_cluster_names()) {
    const Cluster cluster = load_cluster(name);
    EXPECT_EQ(to_yaml(parse_cluster(to_yaml(cluster), name)), to_yaml(cluster)) << name;
    EXPECT_EQ(cluster.per_host, 8) << name;
  }
  EXPECT_EQ(load_cluster("h200").device.memory_bytes, 141.0 * 1024 * 1024 * 1024);
}

// Operations without an efficiency of their own use that of the memory.
TEST(Clusters, OperationsMayHaveRatesOfTheirOwn) {
  const std::string stated = std::string(kSmall) + "meeting_slowdown: 1.2\n";
  Cluster cluster = parse_cluster(stated, "c.yaml");
  EXPECT_TRUE(cluster.device.operation_efficiency.empty());
  EXPECT_EQ(cluster.meeting_slowdown, 1.2);
  cluster.device.operation_efficiency = {{"rms_norm", 0.125}, {"silu", 0.5}};
  cluster.device.optimizer_efficiency = 0.25;
  const Cluster again = parse_cluster(to_yaml(cluster), "c.yaml");
  EXPECT_EQ(again.device.operation_efficiency, cluster.device.operation_efficiency);
  EXPECT_EQ(again.device.optimizer_efficiency, 0.25);
  EXPECT_EQ(to_yaml(again), to_yaml(cluster));
  cluster.device.operation_efficiency = {{"rms_morn", 0.125}};
  EXPECT_THAT(refusal_of(to_yaml(cluster)), HasSubstr("rms_morn"));
  cluster.device.operation_efficiency = {{"loss", 1.5}};
  EXPECT_THAT(refusal_of(to_yaml(cluster)), HasSubstr("1.5 is above the peak; expected a fraction of the peak"));
}

TEST(Clusters, FaultsAreNamedAllAtOnce) {
  EXPECT_THAT(refusal_of("{}"), HasSubstr("device.memory_gib: the key is missing"));
  EXPECT_THAT(refusal_of("{}"), HasSubstr("within.gb_per_second: the key is missing"));
  EXPECT_THAT(refusal_of(std::string(kSmall) + "step_s: 1\n"), HasSubstr("c.yaml:6:1: step_s: unknown key"));
  EXPECT_THAT(refusal_of("device: {memory_efficiency: 1.2}"),
              HasSubstr("1.2 is above the peak; expected a fraction of the peak, at most 1"));
  EXPECT_THROW(load_cluster("a100_80"), ConfigError);
  EXPECT_THROW(load_cluster("no/such.yaml"), ConfigError);
}

TEST(Clusters, APartIsWholeHosts) {
  const Cluster a100 = load_cluster("a100_80g");
  EXPECT_EQ(part_of(a100, 4).per_host, 4);
  EXPECT_EQ(part_of(a100, 24).hosts, 3);
  EXPECT_THROW(part_of(a100, 12), ConfigError);
}

TEST(Collectives, ARingsStepsAndBytes) {
  const Cluster cluster = parse_cluster(kSmall, "c.yaml");
  EXPECT_EQ(all_reduce({1, 1}, 1e9, cluster), 0);
  EXPECT_DOUBLE_EQ(all_reduce({4, 1}, 1e9, cluster), 10e-6 + 6 * (2e-6 + 1e9 / 4 / 100e9));
  EXPECT_DOUBLE_EQ(half_reduce({4, 1}, 1e9, cluster), 10e-6 + 3 * (2e-6 + 1e9 / 4 / 100e9));
  // A single ring over both hosts uses the network of all four devices; with four rings, each uses that of one device.
  EXPECT_DOUBLE_EQ(all_reduce({8, 1}, 1e9, cluster), 14 * (5e-6 + 1e9 / 8 / 40e9));
  EXPECT_DOUBLE_EQ(all_reduce({2, 4}, 1e9, cluster), 2 * (5e-6 + 1e9 / 2 / 10e9));
}

TEST(Collectives, MessagesAndExchanges) {
  const Cluster cluster = parse_cluster(kSmall, "c.yaml");
  EXPECT_DOUBLE_EQ(message({4, 1}, 1e9, cluster), 10e-6 + 2e-6 + 0.01);
  EXPECT_DOUBLE_EQ(message({2, 4}, 1e9, cluster), 5e-6 + 0.1);
  EXPECT_DOUBLE_EQ(exchange({4, 1}, 1e9, cluster), 10e-6 + 3 * 2e-6 + 0.75 * 0.01);
  EXPECT_DOUBLE_EQ(exchange({8, 1}, 1e9, cluster),
                   7 * 5e-6 + 0.5 * 0.1);  // half of the bytes are sent to the other host
}

}  // namespace
}  // namespace gantry::planner
