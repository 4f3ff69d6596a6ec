// Adapters on a user-defined model, whose layers are named by their own paths.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gantry/core/sharding/adapter_split.h"
#include "gantry/tensors/libtorch.h"
#include "lora_rig.h"
#include "small_stack.h"

namespace gantry::testing {
namespace {

using ::testing::HasSubstr;

struct StackRun {
  std::vector<double> losses;
  TensorDict weights;
};

Config adapted_stack(const Layout& layout) {
  Config config = stack_config(layout);
  config.lora = {.r = 2, .alpha = 5, .target_modules = {"stem", "head", "blocks.1", "blocks.2"}};
  return config;
}

StackRun run_adapted_stack(const Config& config) {
  return on_layout<StackRun>(config, [&](World& world) {
    auto* plugin = new HybridParallelPlugin(world, config);
    Booster booster{std::unique_ptr<Plugin>(plugin)};
    auto model = build_stack(config);
    if (config.lora.use_dora) materialize(*model, 5);  // DoRA reads the weights
    add_lora(*model, config);
    add_lora(*model, config);  // a second call changes nothing
    auto boosted = booster.boost(model, build_optimizer(config, *model), cross_entropy());
    StackRun run;
    for (int step = 0; step < 3; ++step) {
      const auto& mesh = plugin->mesh();
      const Batch mine = replica_part(make_batch(stack_batch(6)), mesh.size(axis::kData), mesh.coordinate(axis::kData));
      run.losses.push_back(
          *booster.execute_pipeline(mine, boosted, {.return_loss = true, .broadcast_loss = true}).loss);
      boosted.optimizer->step();
      boosted.optimizer->zero_grad();
    }
    boosted.optimizer->wait();
    const auto& module = boosted.model->stage_module();
    for (const auto& held : module.parameters)
      EXPECT_EQ(held.tensor.requires_grad(), is_adapter(held.placement.name)) << held.placement.name;
    run.weights = gather_tensors(module, plugin->stages(), plugin->mesh(),
                                 [&](std::size_t i) { return module.parameters[i].tensor; });
    return run;
  });
}

TEST(LoraOwnModel, EveryLayoutHasOneRanksNumbers) {
  const StackRun one = run_adapted_stack(adapted_stack({}));
  EXPECT_EQ(one.weights.size(), 2u * 6 + 2 * 4);
  for (const Layout& layout : {Layout{.tensor = 2}, Layout{.pipeline = 2, .tensor = 3}, Layout{.data = 2}}) {
    const StackRun got = run_adapted_stack(adapted_stack(layout));
    for (int step = 0; step < 3; ++step) EXPECT_NEAR(got.losses[step], one.losses[step], 1e-10);
    expect_close(one.weights, got.weights);
  }
}

// DoRA's magnitudes start as the norms of the weights that the program created.
TEST(LoraOwnModel, DoraInEveryLayout) {
  const auto config = [](const Layout& layout) {
    Config made = adapted_stack(layout);
    made.lora.use_dora = true;
    return made;
  };
  const StackRun one = run_adapted_stack(config({}));
  EXPECT_EQ(one.weights.size(), 2u * 6 + 3 * 4);
  for (const auto& [name, values] : one.weights)
    if (name.ends_with(kAdapterMagnitude)) {
      const torch::Tensor norms = one.weights.at(adapted_layer(name) + ".weight").square().sum(1).sqrt();
      EXPECT_FALSE(torch::equal(values, norms)) << name;
      EXPECT_LE((values - norms).abs().max().item<double>(), 0.1) << name;  // after three small steps
    }
  for (const Layout& layout : {Layout{.tensor = 2}, Layout{.pipeline = 2, .tensor = 3}, Layout{.data = 2}}) {
    const StackRun got = run_adapted_stack(config(layout));
    for (int step = 0; step < 3; ++step) EXPECT_NEAR(got.losses[step], one.losses[step], 1e-10);
    expect_close(one.weights, got.weights);
  }
}

TEST(LoraOwnModel, AllLinearAsksForAPolicy) {
  Config config = adapted_stack({});
  config.lora.target_modules = {"all-linear"};
  auto model = build_stack(config);
  add_lora(*model, config);
  for (const auto& item : model->named_parameters())
    EXPECT_FALSE(item.key() == "head.lora_A") << "the output layer has an adapter";
  config.model.policy.clear();
  try {
    add_lora(*build_stack(config), config);
    FAIL() << "no error";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("the value is all-linear, but the output layer is unknown without model.policy"));
  }
}

}  // namespace
}  // namespace gantry::testing
