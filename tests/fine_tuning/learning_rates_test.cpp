// Learning rates by layer (optimizer.groups): their values, and that every layout uses them.
#include <gtest/gtest.h>

#include "gantry/tensors/libtorch.h"
#include "lora_rig.h"
#include "program.h"

namespace gantry::testing {
namespace {

// The first matching group applies.
Config config_with_rates(const LoraLayout& how) {
  Config config = lora_config(how);
  config.lora = {};
  config.optimizer.groups = {{.match = {"layers.0.*"}, .lr = 2e-3},
                             {.match = {"layers.*.mlp.*", "norm.*"}, .lr = 5e-2, .weight_decay = 0.0},
                             {.match = {"embed*"}, .weight_decay = 0.3}};
  return config;
}

double rate_of(const std::string& name) {
  if (name.starts_with("layers.0.")) return 2e-3;
  if (name.starts_with("norm.") || name.find(".mlp.") != std::string::npos) return 5e-2;
  return 3e-2;
}

double decay_of(const std::string& name) {
  if (rate_of(name) == 5e-2) return 0;
  return name.starts_with("embed") ? 0.3 : 0.1;
}

// One step of gradient descent shows the rate of each parameter.
// Setting half the optimizer's rate halves all of them.
TEST(LearningRates, EachParameterStepsByItsOwn) {
  for (const LoraLayout& how : {LoraLayout{}, LoraLayout{.layout = {.pipeline = 2, .data = 2, .tensor = 2}, .zero = 1},
                                LoraLayout{.layout = {.data = 2}, .zero = 3}}) {
    Config config = config_with_rates(how);
    config.optimizer.name = "sgd";
    config.optimizer.momentum = 0;
    TensorDict before;
    const LoraRun run = run_lora(config, 1, [&](Rig& rig) {
      TensorDict weights = rig.weights();
      if (rig.plugin->mesh().rank() == 0) before = std::move(weights);
      rig.boosted.optimizer->set_lr(config.optimizer.lr / 2);
    });
    ASSERT_EQ(before.size(), run.weights.size());
    for (const auto& [name, weight] : before) {
      const torch::Tensor expected = weight - rate_of(name) / 2 * (run.gradients.at(name) + decay_of(name) * weight);
      EXPECT_LE((run.weights.at(name) - expected).abs().max().item<double>(), 1e-14) << name << " " << describe(how);
    }
  }
}

TEST(LearningRates, EveryLayoutHasOneRanksNumbers) {
  const LoraRun one = run_lora(config_with_rates({}));
  for (const LoraLayout& how :
       {LoraLayout{.layout = {.tensor = 3}, .sequence_parallel = true},
        LoraLayout{.layout = {.pipeline = 2, .tensor = 2}, .schedule = "zb_h1"},
        LoraLayout{.layout = {.data = 2}, .zero = 1}, LoraLayout{.layout = {.data = 3}, .zero = 2},
        LoraLayout{.layout = {.data = 2, .tensor = 2}, .sequence_parallel = true, .zero = 3},
        LoraLayout{.layout = {.pipeline = 2, .tensor = 2, .context = 2}}}) {
    expect_same_run(one, run_lora(config_with_rates(how)), describe(how));
    if (HasFailure()) return;
  }
}

// LoRA+: B has a higher learning rate than A.
TEST(LearningRates, OfTheFactorsOfAdapters) {
  const auto config = [](const LoraLayout& how) {
    Config made = lora_config(how);
    made.optimizer.groups = {{.match = {"*lora_B"}, .lr = 0.2}};
    return made;
  };
  const LoraRun one = run_lora(config({})), plain = run_lora(lora_config({}));
  EXPECT_NE(one.losses[1], plain.losses[1]);
  Config by_ratio = lora_config({});
  by_ratio.lora.loraplus_lr_ratio = 0.2 / by_ratio.optimizer.lr;
  expect_same_run(one, run_lora(by_ratio), "loraplus_lr_ratio");
  for (const LoraLayout& how : {LoraLayout{.layout = {.pipeline = 2, .tensor = 3}, .sequence_parallel = true},
                                LoraLayout{.layout = {.data = 2, .tensor = 2}, .zero = 3}})
    expect_same_run(one, run_lora(config(how)), describe(how));
}

}  // namespace
}  // namespace gantry::testing
