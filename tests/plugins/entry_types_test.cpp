// Every number type of a batch's entries, in every layout, compared with one rank.
#include <gmock/gmock.h>

#include "gantry/core/error.h"
#include "gantry/data/tensor_dataset.h"
#include "gantry/plugins/prepared_batch.h"
#include "gantry/tensors/libtorch.h"
#include "small_stack.h"

namespace gantry::testing {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kTypedSamples = 7, kTypedTokens = 5;
const std::vector<Layout> kTypedLayouts = {
    {.pipeline = 2}, {.data = 2}, {.tensor = 2}, {.pipeline = 2, .data = 2, .tensor = 2}};

// Token ids and labels of one type, and a mask. If the type can represent -100, some labels are ignored.
TensorDict typed_tokens(torch::ScalarType type, torch::ScalarType mask_type, bool ignores) {
  const torch::Tensor all = (torch::arange(kTypedSamples * 6).view({kTypedSamples, 6}) * 7) % 29;
  torch::Tensor labels = all.narrow(1, 1, kTypedTokens).clone(), mask = torch::ones({kTypedSamples, kTypedTokens});
  if (ignores) labels.narrow(0, 2, 1).narrow(1, 0, 3).fill_(-100);
  mask.narrow(0, 1, 2).narrow(1, 3, 2).fill_(0);
  return {{"input_ids", all.narrow(1, 0, kTypedTokens).to(type)},
          {"labels", labels.to(type)},
          {"attention_mask", mask.to(mask_type)}};
}

// Two steps of a shuffled epoch, with 5 and 2 samples, then held-out batches of 6 and 1 samples. With two
// replicas, one of them has no sample of the last batch.
std::vector<double> losses_of(const Layout& layout, const TensorDict& samples) {
  Config config = tiny(layout);
  config.comm.threads_per_rank = 1;
  return on_layout<std::vector<double>>(config, [&](World& world) {
    auto* plugin = new HybridParallelPlugin(world, config);
    Booster booster{std::unique_ptr<Plugin>(plugin)};
    auto model = build_model(config);
    const auto data = std::make_shared<TensorDataset>(samples, kTypedTokens);
    auto boosted =
        booster.boost(model, build_optimizer(config, *model), cross_entropy(),
                      std::make_shared<DataLoader>(data, DataLoaderOptions{.global_batch = 5, .keep_last = true}));
    DataLoader held_out(data, {.global_batch = 6, .shuffle = false, .keep_last = true});  // a batch of 6, one of 1
    plugin->distribute(held_out, boosted);
    std::vector<double> losses;
    for (auto& batch : *boosted.loader) {
      EXPECT_EQ(batch.tensors.at("input_ids").scalar_type(), samples.at("input_ids").scalar_type());
      losses.push_back(*booster.execute_pipeline(batch, boosted, {.broadcast_loss = true}).loss);
      boosted.optimizer->step();
      boosted.optimizer->zero_grad();
    }
    for (std::int64_t i = 0; i < held_out.steps(); ++i)
      losses.push_back(
          *booster.execute_pipeline(held_out.batch(i), boosted, {.broadcast_loss = true, .forward_only = true}).loss);
    return losses;
  });
}

void expect_losses(const std::vector<double>& expected, const std::vector<double>& losses, const std::string& label) {
  ASSERT_EQ(losses.size(), expected.size()) << label;
  for (std::size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], expected[i], 1e-10) << label << " " << i;
}

TEST(EntryTypes, IntegersAndBoolsTrainIdenticallyInEveryLayout) {
  const auto full = losses_of({}, typed_tokens(torch::kInt64, torch::kInt64, false));
  const auto ignoring = losses_of({}, typed_tokens(torch::kInt64, torch::kInt64, true));
  ASSERT_EQ(full.size(), 4u);
  EXPECT_NE(full[0], ignoring[0]);
  const std::pair<torch::ScalarType, torch::ScalarType> types[] = {{torch::kUInt8, torch::kBool},
                                                                   {torch::kInt8, torch::kUInt8},
                                                                   {torch::kInt16, torch::kInt8},
                                                                   {torch::kInt32, torch::kFloat32},
                                                                   {torch::kInt64, torch::kBool}};
  for (const auto& [type, mask] : types) {
    const bool ignores = type != torch::kUInt8;
    const TensorDict samples = typed_tokens(type, mask, ignores);
    expect_losses(ignores ? ignoring : full, losses_of({}, samples), dtype_name(type));
    for (const Layout& layout : kTypedLayouts)
      expect_losses(ignores ? ignoring : full, losses_of(layout, samples), dtype_name(type) + " in a layout");
  }
}

// Multiples of 1/8, which every floating type represents exactly.
TensorDict typed_images(torch::ScalarType type) {
  const torch::Tensor eighths = (torch::arange(kTypedSamples * 12).view({kTypedSamples, 3, 2, 2}) * 5 % 17 - 8);
  return {{"x", (eighths.to(torch::kFloat64) / 8).to(type)}, {"labels", torch::arange(kTypedSamples) % 6}};
}

TensorDict weights_after(const Layout& layout, const TensorDict& samples) {
  const Config config = stack_config(layout);
  return on_layout<TensorDict>(config, [&](World& world) {
    auto* plugin = new HybridParallelPlugin(world, config);
    Booster booster{std::unique_ptr<Plugin>(plugin)};
    auto model = build_stack(config);
    auto loader = std::make_shared<DataLoader>(std::make_shared<TensorDataset>(samples),
                                               DataLoaderOptions{.global_batch = 5, .prefetch = 1, .keep_last = true});
    auto boosted = booster.boost(model, build_optimizer(config, *model), cross_entropy(), loader);
    for (auto& batch : *boosted.loader) {
      booster.execute_pipeline(batch, boosted);
      boosted.optimizer->step();
      boosted.optimizer->zero_grad();
    }
    return gather_tensors(boosted.model->stage_module(), plugin->stages(), plugin->mesh(),
                          [&](std::size_t i) { return boosted.model->stage_module().parameters[i].tensor; });
  });
}

TEST(EntryTypes, FloatsAreCastToTheRunsPrecisionInEveryLayout) {
  const TensorDict expected = weights_after({}, typed_images(torch::kFloat64));
  for (const auto type : {torch::kFloat16, torch::kBFloat16, torch::kFloat32, torch::kFloat64})
    for (const Layout& layout : kTypedLayouts) expect_close(expected, weights_after(layout, typed_images(type)), 1e-10);
}

TEST(EntryTypes, WhatABatchCantHaveIsRefusedByName) {
  const auto said = [](const torch::Tensor& x) -> std::string {
    try {
      Batch batch = make_batch({{"x", x}});
      batch.global_samples = batch.samples;
      check_batch(batch);
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(said(torch::ones({2, 3}, torch::kBool)), "");
  EXPECT_THAT(said(torch::ones({2, 3}, torch::kComplexFloat)),
              HasSubstr("batch entry 'x': the tensor is ComplexFloat [2, 3]"));
  EXPECT_THAT(said(torch::ones({2, 3}).to(torch::kFloat8_e5m2)), HasSubstr("expected one of bool, uint8, int8"));
}

}  // namespace
}  // namespace gantry::testing
