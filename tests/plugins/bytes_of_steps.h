// Memory held, and peak memory, of two training steps of a GPT-2 with negligible activations.
#pragma once

#include <gtest/gtest.h>

#include "gantry/booster/recipe.h"
#include "gantry/tensors/memory_meter.h"
#include "model_case.h"

namespace gantry::testing {

constexpr double kBytesWidth = 192;

// Bytes of the tensors of rank 0.
struct BytesOfSteps {
  std::int64_t held = 0, peak = 0;  // the peak is that of the second step
};

// Runs two steps on these tokens. The meter's peak is then the peak of the second step.
inline void run_measured_steps(const torch::Tensor& ids, Booster& booster, Boosted& boosted, MemoryMeter& meter) {
  for (int step = 0; step < 2; ++step) {
    meter.reset_peak();
    booster.execute_pipeline(make_batch({{"input_ids", ids}, {"labels", ids}}), boosted);
    boosted.optimizer->step();
    boosted.optimizer->zero_grad();
  }
  boosted.optimizer->wait();
}

// Measures a GPT-2 with this vocabulary in the layout, ZeRO level and precision of `config`.
inline BytesOfSteps bytes_of_steps(Config config, int vocabulary = 64) {
  config.model.policy = "gpt2";
  config.model.config_json =
      R"({"tie_word_embeddings": false, "n_layer": 10, "n_head": 4, "n_embd": 192, "n_positions": 8, "vocab_size": )" +
      std::to_string(vocabulary) + "}";
  BytesOfSteps bytes;
  EXPECT_EQ(start_ranks()(config,
                          [&](World& world) {
                            MemoryMeter meter(world.device().type());
                            auto* plugin = new HybridParallelPlugin(world, config);
                            Booster booster{std::unique_ptr<Plugin>(plugin)};
                            auto model = build_model(config);
                            auto boosted = booster.boost(model, build_optimizer(config, *model), cross_entropy());
                            run_measured_steps(torch::arange(2).view({1, 2}), booster, boosted, meter);
                            if (world.is_main()) bytes = {meter.bytes(), meter.peak_bytes()};
                          }),
            0);
  return bytes;
}

}  // namespace gantry::testing
