// `gantry train` plans the keys that are auto, and no others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gantry/core/error.h"
#include "gantry/planner/search.h"
#include "program.h"

namespace gantry::planner {
namespace {

using gantry::testing::ScratchFolder;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr const char* kAutoModel =
    "model: {policy: llama, config: {hidden_size: 512, intermediate_size: 1024, num_hidden_layers: 8, "
    "num_attention_heads: 8}}\ndata: {format: text, path: x, sequence_length: 256, batch_size: 16}\n";

struct AutoFile {
  explicit AutoFile(const std::string& keys) : path(scratch.write("c.yaml", std::string(kAutoModel) + keys)) {}
  ScratchFolder scratch;
  std::string path;
};

TEST(AutoKeys, AreThoseThatSayAuto) {
  const auto of = [](const std::string& keys, const std::vector<std::string>& sets = {}) {
    return auto_keys(AutoFile(keys).path, sets);
  };
  EXPECT_THAT(of(""), IsEmpty());
  EXPECT_THAT(of("parallel: {tensor: 2, data: auto}\n"), IsEmpty());  // follows from the number of ranks
  EXPECT_THAT(of("parallel: {zero: 3, gather: auto}\n"), IsEmpty());  // resolved by the runtime
  EXPECT_THAT(of("parallel: {tensor: auto, data: auto}\n"), ElementsAre("parallel.data", "parallel.tensor"));
  EXPECT_THAT(of("schedule: {microbatch_size: auto}\n"), ElementsAre("schedule.microbatch_size"));
  EXPECT_THAT(of("parallel: {tensor: auto}\n", {"parallel.tensor=2"}), IsEmpty());
  EXPECT_THAT(of("", {"parallel.zero=auto"}), ElementsAre("parallel.zero"));
  EXPECT_THAT(of("parallel: {vocabulary: auto}\n"), IsEmpty());  // resolved by the runtime
  EXPECT_THAT(of("parallel: {vocabulary: auto, zero: auto}\n"), ElementsAre("parallel.vocabulary", "parallel.zero"));
  const auto full = of("parallel: auto\n");
  EXPECT_EQ(full, of("", {"parallel=auto"}));
  EXPECT_THAT(full, ElementsAre("parallel.data", "parallel.gather", "parallel.pipeline", "parallel.sequence_parallel",
                                "parallel.shard", "parallel.tensor", "parallel.zero"));
  EXPECT_THROW(auto_keys("/none/c.yaml", {}), ConfigError);
}

// Absent keys keep their defaults, except the size of microbatches, which follows from the layout.
TEST(AutoKeys, TheOthersStayAsTheyAre) {
  const AutoFile file("parallel: auto\n");
  const std::vector<std::string> sets = {"parallel.tensor=2", "train.steps=3"};
  const PlanRequest request = read_auto_request(file.path, sets);
  EXPECT_FALSE(request.open.contains("schedule.name"));
  EXPECT_FALSE(request.open.contains("parallel.tensor"));
  EXPECT_TRUE(request.open.contains("schedule.microbatch_size"));
  const Cluster cluster = with_ranks(load_cluster("a100_80g"), 8, true);
  const SearchResult found = search(request, cluster, {.top = 1000});
  ASSERT_FALSE(found.best.empty());
  for (const auto& one : found.best) {
    EXPECT_EQ(one.layout.tensor, 2);
    EXPECT_EQ(one.layout.schedule, "1f1b");
    EXPECT_EQ(one.layout.recompute, Recompute::kNone);
    EXPECT_EQ(one.layout.ranks(), 8);
  }
  const Layout& best = found.best.front().layout;
  const Config config = configured(file.path, sets, overrides_of(best));
  EXPECT_EQ(config.parallel.data, best.data);
  EXPECT_EQ(config.parallel.zero, best.zero);
  EXPECT_EQ(config.schedule.microbatch_size, best.microbatch);
  EXPECT_EQ(config.train.steps, 3);
  EXPECT_EQ(with_data(plan_request(config), best.data), best);
  const PlanRequest counted = read_auto_request(file.path, {"schedule.microbatches=4"});
  EXPECT_FALSE(counted.open.contains("schedule.microbatch_size"));
}

TEST(AutoKeys, AClusterHasSoManyDevicesAndABuiltInOneAnyNumber) {
  const Cluster cluster = load_cluster("a100_80g");
  EXPECT_EQ(with_ranks(cluster, 4, false).per_host, 4);
  EXPECT_EQ(with_ranks(cluster, 32, true).hosts, 4);
  EXPECT_THROW(with_ranks(cluster, 32, false), ConfigError);
}

}  // namespace
}  // namespace gantry::planner
