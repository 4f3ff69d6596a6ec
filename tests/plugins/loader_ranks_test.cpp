// Which ranks read the samples, and that the numbers do not depend on it.
#include <atomic>
#include <chrono>
#include <gtest/gtest.h>
#include <mutex>
#include <set>
#include <thread>

#include "gantry/booster/recipe.h"
#include "gantry/tensors/libtorch.h"
#include "ranks.h"

namespace gantry::testing {
namespace {

constexpr double kLossTolerance = 1e-10;
constexpr std::int64_t kLoadedTokens = 6;

class Congruence final : public Dataset {
 public:
  explicit Congruence(bool masked) : masked_(masked) {}
  std::int64_t size() const override { return 13; }
  std::int64_t sequence_length() const override { return kLoadedTokens; }
  std::vector<SampleEntry> entries() const override {
    auto entries = next_token_entries(kLoadedTokens);
    if (masked_) entries.push_back({"attention_mask", kLoadedTokens + 1, kLoadedTokens});
    return entries;
  }
  void read(std::int64_t index, std::int64_t* numbers) const override {
    for (std::int64_t i = 0; i <= kLoadedTokens; ++i) numbers[i] = (index * 17 + i * i * 5) % 29;
    if (!masked_) return;
    for (std::int64_t i = 0; i < kLoadedTokens; ++i) numbers[kLoadedTokens + 1 + i] = i < kLoadedTokens - index % 3;
  }

 private:
  bool masked_;
};

struct LoadedRun {
  std::vector<double> losses;  // training losses, then those of a pass over held-out samples
  std::set<int> readers;       // world ranks that opened the data
};

LoadedRun run(const Layout& layout, const std::string& schedule, bool masked, int prefetch) {
  Config config = layout_config(layout);
  config.model.policy = "gpt2";
  config.model.config_json =
      R"({"n_layer": 4, "n_head": 2, "n_embd": 8, "vocab_size": 29, "n_positions": 6, "resid_pdrop": 0.2})";
  config.precision = "float64";
  config.schedule.name = schedule;
  config.schedule.chunks = schedule == "zb_v" ? 2 : 1;
  config.schedule.microbatches = 2;
  config.comm.threads_per_rank = 1;
  LoadedRun all;
  std::mutex mutex;
  const int code = start_ranks()(config, [&](World& world) {
    const SampleSource source{Congruence(masked).entries(), kLoadedTokens, [&](const OpenProgress&) {
                                const std::lock_guard lock(mutex);
                                all.readers.insert(world.rank());
                                return std::vector<WeightedDataset>{{std::make_shared<Congruence>(masked), 1}};
                              }};
    auto* plugin = new HybridParallelPlugin(world, config);
    Booster booster{std::unique_ptr<Plugin>(plugin)};
    auto model = build_model(config);
    auto boosted =
        booster.boost(model, build_optimizer(config, *model), cross_entropy(),
                      std::make_shared<DataLoader>(source, DataLoaderOptions{.global_batch = 5, .prefetch = prefetch}));
    DataLoader held_out(source, {.global_batch = 4, .shuffle = false, .keep_last = true});
    plugin->distribute(held_out, boosted);
    std::vector<double> losses;
    for (auto& batch : *boosted.loader) {  // two steps: every rank must get this number
      losses.push_back(*booster.execute_pipeline(batch, boosted, {.broadcast_loss = true}).loss);
      boosted.optimizer->step();
      boosted.optimizer->zero_grad();
    }
    // 4, 4, 4 and 1: the last batch has fewer samples than there are replicas
    for (std::int64_t i = 0; i < held_out.steps(); ++i)
      losses.push_back(
          *booster.execute_pipeline(held_out.batch(i), boosted, {.broadcast_loss = true, .forward_only = true}).loss);
    // A batch that the program made, complete on all ranks, with the shape of an earlier batch of the loader.
    Batch own = make_batch(held_out.batch(0).tensors);
    for (auto& [name, tensor] : own.tensors) tensor = torch::ones({own.samples, kLoadedTokens}, torch::kInt64);
    losses.push_back(*booster.execute_pipeline(own, boosted, {.broadcast_loss = true, .forward_only = true}).loss);
    const std::lock_guard lock(mutex);
    if (world.is_main()) all.losses = losses;
  });
  EXPECT_EQ(code, 0);
  return all;
}

void expect_equal_runs(const LoadedRun& expected, const LoadedRun& actual, const std::string& label) {
  ASSERT_EQ(actual.losses.size(), expected.losses.size()) << label;
  for (std::size_t i = 0; i < expected.losses.size(); ++i)
    EXPECT_NEAR(actual.losses[i], expected.losses[i], kLossTolerance) << label << " " << i;
}

TEST(LoaderRanks, StagesBetweenReadNothing) {
  const LoadedRun expected = run({}, "1f1b", false, 0);
  EXPECT_EQ(expected.losses.size(), 7u);
  const LoadedRun three = run({.pipeline = 3}, "1f1b", false, 2);
  EXPECT_EQ(three.readers, (std::set<int>{0, 2}));
  expect_equal_runs(expected, three, "pp 3");
  const LoadedRun wide = run({.pipeline = 4, .data = 2}, "1f1b", false, 0);
  EXPECT_EQ(wide.readers, (std::set<int>{0, 1, 6, 7}));
  expect_equal_runs(expected, wide, "pp 4, dp 2");
  const LoadedRun tensor = run({.pipeline = 3, .tensor = 2}, "zb_h1", false, 1);
  EXPECT_EQ(tensor.readers, (std::set<int>{0, 1, 4, 5}));
  expect_equal_runs(expected, tensor, "pp 3, tp 2");
}

// Rank 1 takes longer to open its data than a collective operation may take.
TEST(LoaderRanks, WaitForARankThatIsLate) {
  Config config = layout_config({.pipeline = 2, .data = 2});
  config.model.policy = "gpt2";
  config.model.config_json = R"({"n_layer": 2, "n_head": 2, "n_embd": 8, "vocab_size": 29, "n_positions": 6})";
  config.comm.threads_per_rank = 1;
  config.comm.timeout_seconds = 4;
  std::atomic<int> steps{0};
  const int code = start_ranks()(config, [&](World& world) {
    const SampleSource source{Congruence(false).entries(), kLoadedTokens, [&](const OpenProgress& progress) {
                                if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(6));
                                progress(1);
                                return std::vector<WeightedDataset>{{std::make_shared<Congruence>(false), 1}};
                              }};
    Booster booster(std::make_unique<HybridParallelPlugin>(world, config));
    auto model = build_model(config);
    auto boosted = booster.boost(model, build_optimizer(config, *model), cross_entropy(),
                                 std::make_shared<DataLoader>(source, DataLoaderOptions{.global_batch = 4}));
    Batch batch = boosted.loader->next();
    booster.execute_pipeline(batch, boosted);
    ++steps;
  });
  EXPECT_EQ(code, 0);
  EXPECT_EQ(steps, 4);
}

TEST(LoaderRanks, ARankWithBothEndsReadsAlone) {
  const LoadedRun v = run({.pipeline = 2}, "zb_v", false, 0);
  EXPECT_EQ(v.readers, (std::set<int>{0}));
  expect_equal_runs(run({}, "1f1b", false, 0), v, "zb_v");
}

TEST(LoaderRanks, AnAttentionMaskIsReadByAllStages) {
  const LoadedRun masked = run({.pipeline = 3}, "1f1b", true, 2);
  EXPECT_EQ(masked.readers, (std::set<int>{0, 1, 2}));
  expect_equal_runs(run({}, "1f1b", true, 0), masked, "masked");
}

}  // namespace
}  // namespace gantry::testing
