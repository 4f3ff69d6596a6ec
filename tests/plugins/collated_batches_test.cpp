// Texts of different lengths, padded in each batch: every layout computes the losses of one rank.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <mutex>

#include "gantry/booster/recipe.h"
#include "gantry/data/function_dataset.h"
#include "gantry/tensors/libtorch.h"
#include "ranks.h"

namespace gantry::testing {
namespace {

TensorDict padded_text(std::int64_t index) {
  const std::int64_t length = 4 + index * 7 % 9;
  const torch::Tensor ids = (torch::arange(length) * 5 + index * 17) % 29;
  torch::Tensor labels = ids.roll(-1);
  labels[-1] = kNotCounted;
  return {{"input_ids", ids}, {"labels", labels}, {"attention_mask", torch::ones({length}, torch::kInt64)}};
}

std::vector<double> losses_in(const Layout& layout, const std::string& schedule) {
  Config config = layout_config(layout);
  config.model.policy = "gpt2";
  config.model.config_json = R"({"n_layer": 4, "n_head": 2, "n_embd": 8, "vocab_size": 29, "n_positions": 16,
                                 "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0})";  // by element of a padded batch
  config.precision = "float64";
  config.schedule.name = schedule;
  config.schedule.microbatches = 2;
  config.comm.threads_per_rank = 1;
  std::vector<double> losses;
  std::mutex mutex;
  const int code = start_ranks()(config, [&](World& world) {
    Booster booster(std::make_unique<HybridParallelPlugin>(world, config));
    auto model = build_model(config);
    const auto collate = pad_to_longest({{"input_ids", 0}, {"labels", kNotCounted}, {"attention_mask", 0}});
    auto boosted = booster.boost(
        model, build_optimizer(config, *model), cross_entropy(),
        std::make_shared<DataLoader>(std::make_shared<FunctionDataset>(23, padded_text),
                                     DataLoaderOptions{.global_batch = 6, .steps = 4, .collate = collate}));
    std::vector<double> own;
    for (auto& batch : *boosted.loader) {
      own.push_back(*booster.execute_pipeline(batch, boosted, {.broadcast_loss = true}).loss);
      boosted.optimizer->step();
      boosted.optimizer->zero_grad();
    }
    const std::lock_guard lock(mutex);
    if (world.is_main()) losses = own;
  });
  EXPECT_EQ(code, 0);
  return losses;
}

TEST(CollatedBatches, TrainAsOnOneRank) {
  const std::vector<double> expected = losses_in({}, "1f1b");
  ASSERT_EQ(expected.size(), 4u);
  EXPECT_LT(expected.back(), expected.front());
  const std::vector<std::pair<Layout, std::string>> cases = {{{.pipeline = 3}, "1f1b"},
                                                             {{.pipeline = 2, .data = 3}, "zb_h1"},
                                                             {{.data = 2, .tensor = 2}, "1f1b"},
                                                             {{.pipeline = 2, .tensor = 2}, "gpipe"}};
  for (const auto& [layout, schedule] : cases) {
    const std::string label =
        fmt::format("pp {} dp {} tp {} {}", layout.pipeline, layout.data, layout.tensor, schedule);
    const std::vector<double> actual = losses_in(layout, schedule);
    ASSERT_EQ(actual.size(), expected.size()) << label;
    for (std::size_t i = 0; i < expected.size(); ++i)
      EXPECT_NEAR(actual[i], expected[i], 1e-10) << label << " step " << i;
  }
}

}  // namespace
}  // namespace gantry::testing
