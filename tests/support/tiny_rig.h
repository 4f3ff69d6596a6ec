// A tiny GPT-2, boosted on every rank of a layout, for tests of single steps.
#pragma once

#include <gtest/gtest.h>

#include "gantry/booster/recipe.h"
#include "gantry/optimizers/gradient_buffers.h"
#include "gantry/plugins/gather.h"
#include "model_case.h"

namespace gantry::testing {

constexpr double kTolerance = 1e-10;

inline Config tiny(const Layout& layout, int microbatches = 2) {
  Config config = layout_config(layout);
  config.model.policy = "gpt2";
  config.model.config_json =
      R"({"n_layer": 4, "n_head": 3, "n_embd": 12, "vocab_size": 29, "n_positions": 5, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0})";
  config.precision = "float64";
  config.schedule.microbatches = microbatches;
  config.optimizer.lr = 1e-2;
  return config;
}

inline TensorDict tokens(std::int64_t samples, int seed = 0) {
  const torch::Tensor all = (torch::arange(samples * 6).view({samples, 6}) * 7 + seed) % 29;
  return {{"input_ids", all.narrow(1, 0, 5).contiguous()}, {"labels", all.narrow(1, 1, 5).contiguous()}};
}

// A boosted tiny model on one rank.
struct Rig {
  Rig(World& world, const Config& config, Criterion criterion = cross_entropy(), bool optimize = true)
      : plugin(new HybridParallelPlugin(world, config)), booster(std::unique_ptr<Plugin>(plugin)) {
    auto model = build_model(config);
    boosted = booster.boost(model, optimize ? build_optimizer(config, *model) : nullptr, std::move(criterion));
  }
  // This replica's samples of a full batch.
  Batch batch(const TensorDict& full) const {
    Batch all = make_batch(full);
    const auto pieces = split_evenly(all.samples, plugin->mesh().size("dp"));
    const auto [begin, end] = pieces[plugin->mesh().coordinate("dp")];
    Batch mine = slice(all, begin, end);
    mine.first_sample = 0;
    return mine;  // execute_pipeline computes the counts
  }
  TensorDict gradients() {
    return gather_tensors(boosted.model->stage_module(), plugin->stages(), plugin->mesh(),
                          [&](std::size_t i) { return boosted.optimizer->gradients().gradient(i); });
  }
  // The full weights, without those in 4 or 8 bits.
  TensorDict weights() {
    return gather_tensors(boosted.model->stage_module(), plugin->stages(), plugin->mesh(), [&](std::size_t i) {
      const torch::Tensor& tensor = boosted.model->stage_module().parameters[i].tensor;
      return tensor.is_floating_point() ? tensor : torch::Tensor();
    });
  }
  HybridParallelPlugin* plugin;
  Booster booster;
  Boosted boosted;
};

inline TensorDict on_cpu(TensorDict tensors) {
  for (auto& [name, tensor] : tensors) tensor = tensor.cpu();
  return tensors;
}

// Runs the body on every rank of a layout and returns rank 0's result. A TensorDict is moved to the CPU, so
// that other ranks can read it without waiting for rank 0's device.
template <class Result>
Result on_layout(const Config& config, const std::function<Result(World&)>& body) {
  Result result{};
  EXPECT_EQ(start_ranks()(config,
                          [&](World& world) {
                            Result mine = body(world);
                            if constexpr (std::is_same_v<Result, TensorDict>) mine = on_cpu(std::move(mine));
                            if (world.is_main()) result = std::move(mine);
                          }),
            0);
  return result;
}

// Expects close values, equal names and shapes, and at least one tensor.
inline void expect_close(const TensorDict& a, const TensorDict& b, double tolerance = kTolerance) {
  EXPECT_FALSE(a.empty());
  for (const auto& [name, tensor] : b) EXPECT_TRUE(a.contains(name)) << name;
  for (const auto& [name, tensor] : a) {
    ASSERT_TRUE(b.contains(name)) << name;
    ASSERT_EQ(tensor.sizes(), b.at(name).sizes()) << name;
    if (tensor.numel() == 0) continue;
    EXPECT_LE((tensor.cpu() - b.at(name).cpu()).abs().max().item<double>(),
              tolerance * std::max(1.0, tensor.abs().max().item<double>()))
        << name;
  }
}

}  // namespace gantry::testing
