// The kinds of entries in a batch, and the weighting of a criterion's mean, compared with one rank.
#include <gmock/gmock.h>

#include <torch/nn/functional/loss.h>

#include "gantry/core/error.h"
#include "gantry/optimizers/gradient_buffers.h"
#include "gantry/tensors/libtorch.h"
#include "small_stack.h"

namespace gantry::testing {
namespace {

using ::testing::HasSubstr;

// Images of shape [3, 2, 2], each with a class.
class Images final : public Dataset {
 public:
  std::int64_t size() const override { return 10; }
  std::int64_t sequence_length() const override { return 0; }
  std::vector<SampleEntry> entries() const override {
    return {{.name = "x", .first = 0, .length = 12, .type = NumberType::kFloat32, .shape = {3, 2, 2}},
            {.name = "labels", .first = 0}};
  }
  void read_numbers(std::int64_t index, const NumberRow& row) const override {
    if (row.type() == NumberType::kInt64) {
      *row.as<std::int64_t>() = index % 6;
      return;
    }
    for (int i = 0; i < 12; ++i) row.as<float>()[i] = std::sin(static_cast<float>(index * 12 + i));
  }
};

struct Trained {
  std::vector<double> losses;
  TensorDict weights;
};

Trained train_on_images(const Layout& layout, const std::string& precision, const std::string& schedule) {
  Config config = stack_config(layout);
  config.precision = precision;
  config.schedule.name = schedule;
  return on_layout<Trained>(config, [&](World& world) {
    auto* plugin = new HybridParallelPlugin(world, config);
    Booster booster{std::unique_ptr<Plugin>(plugin)};
    auto model = build_stack(config);
    auto loader = std::make_shared<DataLoader>(std::make_shared<Images>(), DataLoaderOptions{.global_batch = 6});
    auto boosted = booster.boost(model, build_optimizer(config, *model), cross_entropy(), loader);
    Trained trained;
    for (int step = 0; step < 3; ++step) {
      const Batch batch = boosted.loader->next();
      EXPECT_EQ(batch.tensors.at("x").scalar_type(), torch::kFloat32);
      EXPECT_EQ(batch.tensors.at("x").sizes().slice(1), (torch::IntArrayRef{3, 2, 2}));
      trained.losses.push_back(*booster.execute_pipeline(batch, boosted, {.broadcast_loss = true}).loss);
      boosted.optimizer->step();
      boosted.optimizer->zero_grad();
    }
    boosted.optimizer->wait();
    trained.weights = gather_tensors(boosted.model->stage_module(), plugin->stages(), plugin->mesh(),
                                     [&](std::size_t i) { return boosted.model->stage_module().parameters[i].tensor; });
    return trained;
  });
}

TEST(RealEntries, ImagesTrainIdenticallyInEveryLayout) {
  const Trained one = train_on_images({}, "float64", "1f1b");
  for (const Layout& layout : {Layout{.pipeline = 3}, Layout{.data = 2}, Layout{.pipeline = 2, .data = 2, .tensor = 2}})
    for (const char* schedule : {"1f1b", "zb_h1"}) {
      const Trained got = train_on_images(layout, "float64", schedule);
      expect_close(one.weights, got.weights, 1e-9);
    }
}

TEST(RealEntries, AreCastToTheRunsPrecision) {
  const Trained wide = train_on_images({}, "float32", "1f1b");
  for (const char* precision : {"bfloat16", "float32"}) {
    const Trained got = train_on_images({.pipeline = 2}, precision, "1f1b");
    EXPECT_NEAR(got.losses.back(), wide.losses.back(), 0.05) << precision;
  }
}

// torch's mean over the labels that are not ignored.
torch::Tensor torchs_mean(const TensorDict& outputs, const TensorDict& batch) {
  return torch::nn::functional::cross_entropy(outputs.at("logits"), batch.at("labels"));
}

// Three of eight labels are ignored.
TensorDict partly_ignored() {
  TensorDict batch = stack_batch(8);
  torch::Tensor labels = batch.at("labels").clone();
  labels.narrow(0, 0, 3).fill_(-100);
  batch.set("labels", labels);
  return batch;
}

TensorDict gradients_with(const Criterion& criterion, const Layout& layout, int microbatches) {
  Config config = stack_config(layout);
  config.schedule.microbatches = microbatches;
  return on_layout<TensorDict>(config, [&](World& world) {
    auto* plugin = new HybridParallelPlugin(world, config);
    Booster booster{std::unique_ptr<Plugin>(plugin)};
    auto model = build_stack(config);
    auto boosted = booster.boost(model, build_optimizer(config, *model), criterion);
    const auto& mesh = plugin->mesh();
    booster.execute_pipeline(replica_part(make_batch(partly_ignored()), mesh.size("dp"), mesh.coordinate("dp")),
                             boosted);
    return gather_tensors(boosted.model->stage_module(), plugin->stages(), mesh,
                          [&](std::size_t i) { return boosted.optimizer->gradients().gradient(i); });
  });
}

TEST(MeanCriterion, OverLabelsThatCountIsOneDevicesEverywhere) {
  const TensorDict full = gradients_with(torchs_mean, {}, 1);  // one microbatch: any mean is right
  const TensorDict counted = gradients_with(cross_entropy(), {}, 1);
  expect_close(full, counted);
  for (const Layout& layout : {Layout{}, Layout{.pipeline = 2}, Layout{.data = 2}, Layout{.data = 2, .tensor = 2}})
    for (const int microbatches : {1, 2, 4})
      expect_close(full, gradients_with(mean_over_labels(torchs_mean), layout, microbatches));
}

TEST(MeanCriterion, WithIgnoredLabelsOfSeveralMicrobatchesIsRefused) {
  for (const Layout& layout : {Layout{}, Layout{.data = 2}}) {
    Config config = stack_config(layout);
    config.schedule.microbatches = layout.data == 1 ? 2 : 1;
    ::testing::internal::CaptureStderr();
    const int code = start_ranks()(config, [&](World& world) {
      auto* plugin = new HybridParallelPlugin(world, config);
      Booster booster{std::unique_ptr<Plugin>(plugin)};
      auto model = build_stack(config);
      auto boosted = booster.boost(model, build_optimizer(config, *model), torchs_mean);
      booster.execute_pipeline(
          replica_part(make_batch(partly_ignored()), plugin->mesh().size("dp"), plugin->mesh().coordinate("dp")),
          boosted);
    });
    EXPECT_EQ(code, 2);
    EXPECT_THAT(::testing::internal::GetCapturedStderr(),
                HasSubstr("it returned a mean, but 'labels' contains ignored labels (-100)"));
  }
}

TEST(SequenceLength, IsFoundInTheBatchOrAskedFor) {
  const auto tokens_of = [](const TensorDict& batch) { return BatchUse().tokens_of(batch); };
  const torch::Tensor ids = torch::zeros({2, 7}, torch::kInt64), others = torch::zeros({2, 5}, torch::kInt64);
  EXPECT_EQ(tokens_of({{"input_ids", ids}, {"others", others}}), 7);
  EXPECT_EQ(tokens_of({{"inputs_embeds", torch::zeros({2, 7, 3})}, {"labels", ids}, {"label", ids.select(1, 0)}}), 7);
  EXPECT_EQ(tokens_of({{"labels", ids}, {"others", others}}), 0);
  EXPECT_EQ(tokens_of({{"pixels", torch::zeros({2, 3, 4, 4})}, {"labels", ids.select(1, 0)}}), 0);

  Config config = tiny({.tensor = 2});
  config.parallel.sequence_parallel = true;
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(start_ranks()(config,
                          [&](World& world) {
                            Rig rig(world, config);
                            rig.booster.execute_pipeline(make_batch(stack_batch(4)), rig.boosted);
                          }),
            4);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("set batch.tokens_per_sample, or state BatchUse::tokens_per_sample in DecoderPolicy::split"));
}

}  // namespace
}  // namespace gantry::testing
