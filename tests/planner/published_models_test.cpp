// Plans of published models on every built-in cluster are physically possible, are accepted by the configuration, and
// are not slower with more resources.
#include <fmt/format.h>
#include <functional>
#include <gtest/gtest.h>

#include "gantry/models/described/model_flops.h"
#include "gantry/planner/search.h"
#include "program.h"

namespace gantry::planner {
namespace {

struct PublishedModel {
  const char* name;
  const char* model;
  int ranks, sequence, batch;
};

constexpr PublishedModel kModels[] = {
    {"GPT-2 XL", "gpt2, config: {n_embd: 1600, n_layer: 48, n_head: 25, n_positions: 1024}", 8, 1024, 512},
    {"Llama 2 7B", "llama, config: {hidden_size: 4096, intermediate_size: 11008, num_hidden_layers: 32}", 64, 4096,
     1024},
    {"GPT-3", "gpt2, config: {n_embd: 12288, n_layer: 96, n_head: 96, n_positions: 2048}", 1024, 2048, 1536},
    {"Llama 3 70B",
     "llama, config: {hidden_size: 8192, intermediate_size: 28672, num_hidden_layers: 80, num_attention_heads: 64, "
     "num_key_value_heads: 8, vocab_size: 128256}",
     512, 8192, 2048},
    {"Mixtral 8x7B", "mixtral, config: {num_key_value_heads: 8}", 128, 4096, 1024}};

// With open context and expert parallelism.
PlanRequest request_for(const PublishedModel& of, const std::string& path) {
  return read_plan_request(
      path, {fmt::format("data.sequence_length={}", of.sequence), fmt::format("data.batch_size={}", of.batch)},
      /*only_stated=*/false);
}

std::string write_model(const gantry::testing::ScratchFolder& scratch, const PublishedModel& of) {
  return scratch.write("c.yaml", fmt::format("model: {{policy: {}}}\ndata: {{format: text, path: x}}\nprecision: "
                                             "bfloat16\nparallel: {{context: auto, expert: auto}}\n",
                                             of.model));
}

TEST(PlansOfPublishedModels, AreWithinWhatDevicesCanDo) {
  for (const PublishedModel& of : kModels) {
    const gantry::testing::ScratchFolder scratch;
    const std::string path = write_model(scratch, of);
    const PlanRequest request = request_for(of, path);
    for (const auto& name : builtin_cluster_names()) {
      SCOPED_TRACE(fmt::format("{} on {}", of.name, name));
      const Cluster cluster = part_of(load_cluster(name), of.ranks);
      const auto found = search(request, cluster, {.top = 3});
      ASSERT_EQ(found.best.size(), 3u);
      for (const auto& [layout, estimate] : found.best) {
        EXPECT_GT(estimate.mfu, 0.15) << describe(layout);
        EXPECT_LT(estimate.mfu, cluster.device.matrix_efficiency) << describe(layout);
        EXPECT_LE(estimate.most_memory(), cluster.device.memory_bytes) << describe(layout);
        // All parameters are in memory: with zero 3 in master weights, which take 12 bytes including their moments.
        const int shards = layout.shard > 0 ? layout.shard : layout.data * layout.context;
        double held = 0;
        for (const Memory& rank : estimate.memory) held += layout.zero == 3 ? rank.optimizer / 6 : rank.parameters;
        held *= static_cast<double>(layout.tensor) * layout.expert * (layout.zero == 3 ? shards : 1);
        EXPECT_GE(held, 2 * models::parameter_count(request.workload.model)) << describe(layout);
      }
      // The configuration accepts the proposed layout, and its estimate is the same.
      const PlannedLayout& best = found.best.front();
      const std::string planned =
          configured(path,
                     {fmt::format("data.sequence_length={}", of.sequence), fmt::format("data.batch_size={}", of.batch)},
                     overrides_of(best.layout))
              .to_yaml();
      const PlanRequest stated = read_plan_request(scratch.write("d.yaml", planned), {}, /*only_stated=*/true);
      EXPECT_DOUBLE_EQ(estimate(stated.workload, stated.stated, cluster).step_seconds, best.estimate.step_seconds)
          << describe(best.layout) << " and " << describe(stated.stated);
    }
  }
}

TEST(PlansOfPublishedModels, MoreOfAnythingIsNoSlower) {
  const std::pair<const char*, std::function<void(Cluster&)>> changes[] = {
      {"memory", [](Cluster& more) { more.device.memory_bytes *= 1.5; }},
      {"the memory's rate", [](Cluster& more) { more.device.memory_bytes_per_second *= 1.5; }},
      {"products", [](Cluster& more) { more.device.matrix_flops["bfloat16"] *= 1.5; }},
      {"links within hosts", [](Cluster& more) { more.within.bytes_per_second *= 1.5; }},
      {"links between hosts", [](Cluster& more) { more.between.bytes_per_second *= 1.5; }},
      {"less latency", [](Cluster& more) { more.within.latency_seconds = more.between.latency_seconds = 0; }}};
  for (const PublishedModel& of : kModels) {
    const gantry::testing::ScratchFolder scratch;
    const PlanRequest request = request_for(of, write_model(scratch, of));
    for (const char* name : {"a100_80g", "b200"}) {
      const Cluster cluster = part_of(load_cluster(name), of.ranks);
      const double now = search(request, cluster, {.top = 1}).best.at(0).estimate.step_seconds;
      for (const auto& [what, change] : changes) {
        Cluster more = cluster;
        change(more);
        EXPECT_LE(search(request, more, {.top = 1}).best.at(0).estimate.step_seconds, now * (1 + 1e-9))
            << "more of " << what << " for " << of.name << " on " << name;
      }
    }
  }
}

}  // namespace
}  // namespace gantry::planner
