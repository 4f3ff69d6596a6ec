// Training loops of a program without a Trainer.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gantry/booster/recipe.h"
#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/trainer/train.h"
#include "gantry/trainer/trainer.h"
#include "program.h"
#include "program_run.h"
#include "small_stack.h"

namespace gantry::testing {
namespace {

using ::testing::HasSubstr;

TEST(PlainLoop, ThatASignalStoppedReturns75) {
  const ScratchFolder scratch;
  Config config = text_config(scratch, fmt::format("checkpoint: {{path: \"{}\"}}\n", scratch / "c"));
  const auto end = [&](bool stopped) {
    return train_by_loop(config, [&](World& world) { return stopped && world.rank() == 2; });
  };
  EXPECT_EQ(end(true), 75);
  EXPECT_EQ(end(false), 0);
}

TEST(PlainLoop, RefusesKeysThatNothingHonoursAndTakesThoseThatItSaysItHonours) {
  const ScratchFolder scratch;
  const Config config =
      text_config(scratch, fmt::format("checkpoint: {{path: \"{}\"}}\noutput: \"{}\"\n", scratch / "c", scratch / "o"));
  const auto step = [&](World& world) {
    Booster booster(std::make_unique<HybridParallelPlugin>(world, config));
    auto model = build_model(config);
    auto boosted = booster.boost(model, build_optimizer(config, *model), cross_entropy(), build_loader(config));
    boosted.optimizer->set_steps(3, 3);  // the check also covers a resumed run
    booster.execute_pipeline(boosted.loader->next(), boosted);
  };
  const Failure refused = failure_of(config, step);
  EXPECT_EQ(refused.exit_code, ConfigError::kExitCode);
  EXPECT_THAT(refused.line,
              HasSubstr("lr_schedule, checkpoint.path, output: the configuration sets this, but the program "
                        "does not use it"));
  for (const char* key : {"lr_schedule", "checkpoint.path", "output"}) config.mark_used(key);
  EXPECT_EQ(failure_of(config, step).line, "nothing failed");
}

TEST(PlainLoop, StepsAtTheRatesOfTheScheduleThatWasBoosted) {
  const ScratchFolder scratch;
  const Config config = resolve_model(text_config(scratch));
  EXPECT_EQ(start_ranks()(config,
                          [&](World& world) {
                            Booster booster(std::make_unique<HybridParallelPlugin>(world, config));
                            auto model = build_model(config);
                            auto boosted = booster.boost(model, build_optimizer(config, *model), cross_entropy(),
                                                         build_loader(config), build_lr_schedule(config));
                            for (int step = 1; step <= 6; ++step) {
                              booster.execute_pipeline(boosted.loader->next(), boosted);
                              boosted.optimizer->step();
                              boosted.optimizer->zero_grad();
                              EXPECT_EQ(boosted.optimizer->inner().param_groups()[0].options().get_lr(),
                                        build_lr_schedule(config).at(step));
                            }
                          }),
            0);
}

// Gradients of one model stay unreduced while those of another model are reduced.
TEST(PlainLoop, NoSyncIsOfOneModel) {
  const Config config = tiny({.data = 2, .tensor = 1});
  EXPECT_EQ(start_ranks()(config,
                          [&](World& world) {
                            Booster booster(std::make_unique<HybridParallelPlugin>(world, config));
                            const auto boost = [&] {
                              auto model = build_model(config);
                              return booster.boost(model, build_optimizer(config, *model), cross_entropy());
                            };
                            Boosted waiting = boost(), stepped = boost();
                            const auto batch = make_batch(tokens(2, world.rank()));
                            {
                              const auto guard = booster.no_sync(waiting);
                              booster.execute_pipeline(batch, waiting);
                              booster.execute_pipeline(batch, stepped);
                              EXPECT_THROW(waiting.optimizer->step(), UsageError);
                              stepped.optimizer->step();
                            }
                            booster.sync_gradients(waiting);
                            waiting.optimizer->step();
                          }),
            0);
}

}  // namespace
}  // namespace gantry::testing
