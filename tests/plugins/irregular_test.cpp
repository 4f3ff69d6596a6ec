// Batches and calls that are not regular: lengths that differ over replicas, stages without labels, microbatches
// without labels, dropped accumulations and calls that throw. One rank has the same gradients.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <torch/nn/functional/loss.h>

#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"
#include "small_stack.h"

namespace gantry::testing {
namespace {

using ::testing::HasSubstr;

TensorDict shortened(const TensorDict& batch, std::int64_t length) {
  return {{"input_ids", batch.at("input_ids").narrow(1, 0, length).contiguous()},
          {"labels", batch.at("labels").narrow(1, 0, length).contiguous()}};
}

// Samples 0 and 1 have five tokens, and samples 2 and 3 have three.
TensorDict long_samples() { return tokens(2); }
TensorDict short_samples() { return shortened(tokens(2, 11), 3); }

// The same as one batch. A causal model is not changed by padding on the right.
TensorDict padded() {
  TensorDict full = tokens(4);
  for (const char* name : {"input_ids", "labels"}) {
    torch::Tensor entry = torch::full({4, 5}, std::string(name) == "labels" ? -100 : 0, torch::kInt64);
    entry.narrow(0, 0, 2).copy_(long_samples().at(name));
    entry.narrow(0, 2, 2).narrow(1, 0, 3).copy_(short_samples().at(name));
    full.set(name, entry);
  }
  return full;
}

TensorDict complete_gradients(Rig& rig) {
  rig.boosted.optimizer->gradients().complete();
  return rig.gradients();
}

TensorDict gradients_of_one_rank(const TensorDict& batch) {
  return on_layout<TensorDict>(tiny({}, 1), [&](World& world) {
    Rig rig(world, tiny({}, 1));
    rig.booster.execute_pipeline(make_batch(batch), rig.boosted);
    return complete_gradients(rig);
  });
}

Config with_zero(const Layout& layout, int zero, int microbatches = 2) {
  Config config = tiny(layout, microbatches);
  config.parallel.zero = zero;
  return config;
}

TEST(Irregular, ReplicasWithDifferentLengths) {
  const TensorDict expected = gradients_of_one_rank(padded());
  for (const int zero : {0, 1, 2, 3}) {
    const Config config = with_zero({.data = 2}, zero);
    expect_close(expected, on_layout<TensorDict>(config, [&](World& world) {
                   Rig rig(world, config);
                   const bool first = rig.plugin->mesh().coordinate("dp") == 0;
                   rig.booster.execute_pipeline(make_batch(first ? long_samples() : short_samples()), rig.boosted);
                   return complete_gradients(rig);
                 }));
  }
}

TEST(Irregular, ReplicasWithDifferentLengthsAndSeveralCalls) {
  const TensorDict expected = gradients_of_one_rank(padded());
  const Config config = tiny({.data = 2}, 1);
  expect_close(expected, on_layout<TensorDict>(config, [&](World& world) {
                 Rig rig(world, config);
                 const std::int64_t mine = rig.plugin->mesh().coordinate("dp");
                 const auto one = [&](const TensorDict& batch) {
                   TensorDict part;
                   for (const auto& [name, tensor] : batch) part.set(name, tensor.narrow(0, mine, 1));
                   rig.booster.execute_pipeline(make_batch(part), rig.boosted);
                 };
                 {
                   const auto guard = rig.booster.no_sync();
                   one(mine == 0 ? long_samples() : short_samples());
                 }
                 one(mine == 0 ? short_samples() : long_samples());
                 return complete_gradients(rig);
               }));
}

// A program may pass input_ids only to the first stage, and labels only to the last one.
TEST(Irregular, StagesWithoutTokensAndLabels) {
  const TensorDict full = tokens(4), expected = gradients_of_one_rank(full);
  const Config config = tiny({.pipeline = 4});
  expect_close(expected, on_layout<TensorDict>(config, [&](World& world) {
                 Rig rig(world, config);
                 TensorDict mine = {{"weights", torch::ones({4})}};
                 if (rig.plugin->stages().holds_first()) mine = {{"input_ids", full.at("input_ids")}};
                 if (rig.plugin->stages().holds_last()) mine = {{"labels", full.at("labels")}};
                 rig.booster.execute_pipeline(make_batch(mine), rig.boosted);
                 return complete_gradients(rig);
               }));
}

void drop_by_boosted(Rig& rig) { rig.boosted.optimizer->zero_grad(); }
void drop_by_inner(Rig& rig) { rig.boosted.optimizer->inner().zero_grad(); }
void drop_by_module(Rig& rig) { rig.boosted.model->module().zero_grad(); }

TEST(Irregular, ADroppedAccumulationLeavesNothing) {
  const TensorDict full = tokens(4), expected = gradients_of_one_rank(full);
  for (const int zero : {0, 1, 2, 3})
    for (const auto& [name, drop] : {std::pair("boosted", &drop_by_boosted), std::pair("inner", &drop_by_inner),
                                     std::pair("module", &drop_by_module)}) {
      if (zero >= 2 && name == std::string("module")) continue;  // there are no gradients to remove
      SCOPED_TRACE(fmt::format("zero {}, {}", zero, name));
      const Config config = with_zero({.pipeline = 2, .data = 2}, zero);
      const auto drop_of = drop;
      expect_close(expected, on_layout<TensorDict>(config, [&](World& world) {
                     Rig rig(world, config);
                     {
                       const auto guard = rig.booster.no_sync();
                       rig.booster.execute_pipeline(rig.batch(tokens(8, 5)), rig.boosted);
                       drop_of(rig);
                       rig.booster.execute_pipeline(rig.batch(tokens(4, 7)), rig.boosted);
                     }
                     drop_of(rig);
                     rig.booster.execute_pipeline(rig.batch(full), rig.boosted);
                     return complete_gradients(rig);
                   }));
    }
}

// A program that catches an error and skips the batch.
TEST(Irregular, ACallThatThrowsLeavesNothing) {
  const TensorDict full = tokens(4), expected = gradients_of_one_rank(full);
  for (const Layout& layout : {Layout{}, Layout{.data = 2}})
    for (const int zero : {0, 1, 2, 3}) {
      SCOPED_TRACE(fmt::format("{} replicas, zero {}", layout.data, zero));
      const Config config = with_zero(layout, zero);
      expect_close(expected, on_layout<TensorDict>(config, [&](World& world) {
                     int calls = 0;
                     const Criterion throws = Criterion([&calls](const TensorDict& outputs, const TensorDict& batch) {
                       if (++calls == 4) throw InputError({"sample", "the label is wrong", "", ""});
                       return cross_entropy()(outputs, batch, {});
                     });
                     Rig rig(world, config, throws);
                     {
                       const auto guard = rig.booster.no_sync();
                       rig.booster.execute_pipeline(rig.batch(tokens(4, 5)), rig.boosted);
                     }
                     EXPECT_THROW(rig.booster.execute_pipeline(rig.batch(tokens(4, 7)), rig.boosted), InputError);
                     EXPECT_THROW(rig.boosted.optimizer->step(), UsageError);
                     rig.booster.execute_pipeline(rig.batch(full), rig.boosted);
                     return complete_gradients(rig);
                   }));
    }
}

TEST(Irregular, OnlySomeRanksAccumulating) {
  const Config config = tiny({.data = 2});
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(start_ranks()(config,
                          [&](World& world) {
                            Rig rig(world, config);
                            const auto guard = rig.booster.no_sync();
                            rig.booster.execute_pipeline(rig.batch(tokens(4)), rig.boosted);
                            if (world.rank() == 0) rig.boosted.optimizer->zero_grad();
                            rig.booster.execute_pipeline(rig.batch(tokens(4)), rig.boosted);
                          }),
            2);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("only some ranks add to the gradients of earlier calls"));
}

TEST(Irregular, TheNormFollowsChangesInPlace) {
  const Config config = tiny({.data = 2});
  on_layout<int>(config, [&](World& world) {
    Rig rig(world, config);
    rig.booster.execute_pipeline(rig.batch(tokens(4)), rig.boosted);
    auto& optimizer = *rig.boosted.optimizer;
    const double norm = optimizer.grad_norm();
    const auto& parameters = optimizer.gradients().parameters();
    for (const auto& held : parameters) held.tensor.grad().mul_(10);
    EXPECT_NEAR(optimizer.grad_norm(), 10 * norm, 1e-9 * norm);
    // If a gradient is not finite on a single rank, no rank steps.
    if (world.is_main()) parameters[0].tensor.grad().fill_(std::numeric_limits<double>::infinity());
    EXPECT_THROW(optimizer.step(), NumericalError);
    return 0;
  });
}

TEST(Irregular, GuardsOfNoSyncAreNested) {
  const TensorDict full = tokens(6), expected = gradients_of_one_rank(full);
  const Config config = tiny({.data = 2}, 1);
  for (const bool of_model : {false, true})
    expect_close(expected, on_layout<TensorDict>(config, [&](World& world) {
                   Rig rig(world, config);
                   const auto run = [&](std::int64_t first) {
                     const Batch two = slice(make_batch(full), first, first + 2);
                     rig.booster.execute_pipeline(rig.batch(two.tensors), rig.boosted);
                   };
                   const auto guarded = [&](std::int64_t first) {
                     const auto guard = of_model ? rig.booster.no_sync(rig.boosted) : rig.booster.no_sync();
                     run(first);
                   };
                   {
                     const auto guard = rig.booster.no_sync(rig.boosted);
                     guarded(0);
                     run(2);
                   }
                   run(4);
                   return complete_gradients(rig);
                 }));
}

torch::Tensor mean_by_torch_of_counted(const TensorDict& outputs, const TensorDict& batch) {
  return torch::nn::functional::cross_entropy(outputs.at("logits").reshape({-1, 29}), batch.at("labels").reshape({-1}));
}

TEST(Irregular, MicrobatchesWithoutALabel) {
  TensorDict full = tokens(8);
  torch::Tensor labels = full.at("labels").clone();
  labels.narrow(0, 4, 2).fill_(-100);  // the first microbatch of the second replica
  labels[0].fill_(-100);
  full.set("labels", labels);
  const TensorDict expected = gradients_of_one_rank(full);
  for (const int zero : {0, 1, 2, 3})
    for (const char* gather : {"auto", "step", "microbatch"})
      for (const int pipeline : {1, 2}) {
        if (zero < 3 && gather != std::string("auto")) continue;
        SCOPED_TRACE(fmt::format("zero {}, gather {}, pipeline {}", zero, gather, pipeline));
        Config config = with_zero({.pipeline = pipeline, .data = 2}, zero);
        config.parallel.gather = gather;
        config.parallel.bucket_mb = 1e-4;
        expect_close(expected, on_layout<TensorDict>(config, [&](World& world) {
                       Rig rig(world, config, mean_over_labels(mean_by_torch_of_counted));
                       rig.booster.execute_pipeline(rig.batch(full), rig.boosted);
                       return complete_gradients(rig);
                     }));
      }
}

// With a scalar among the outputs, whose gradient must stay zero.
class ReturnsAScalarToo final : public StackPolicy {
 public:
  TensorDict forward(StackImpl& model, const StageContext& stage, TensorDict in) const override {
    TensorDict outputs = StackPolicy::forward(model, stage, std::move(in));
    if (stage.is_last()) outputs.set("size", outputs.at("logits").square().sum());
    return outputs;
  }
};

TEST(Irregular, AConstantLossAndAScalarOutput) {
  const auto gradients_with = [](std::shared_ptr<const Policy> policy) {
    const Config config = stack_config({});
    return on_layout<TensorDict>(config, [&](World& world) {
      auto* plugin = new HybridParallelPlugin(world, config);
      Booster booster{std::unique_ptr<Plugin>(plugin)};
      auto model = build_stack(config);
      const Criterion criterion = Criterion([](const TensorDict& outputs, const TensorDict& batch) {
        const torch::Tensor count = (batch.at("labels") != -100).sum();
        if (count.item<std::int64_t>() == 0) return Loss(torch::zeros({}, torch::kFloat64), count);
        return cross_entropy()(outputs, batch, {});
      });
      auto boosted = booster.boost({.model = model,
                                    .optimizer = build_optimizer(config, *model),
                                    .criterion = criterion,
                                    .loader = nullptr,
                                    .lr_schedule = {},
                                    .policy = policy});
      TensorDict batch = stack_batch(8);
      batch.at("labels").narrow(0, 0, 4).fill_(-100);
      booster.execute_pipeline(make_batch(batch), boosted);
      return gather_tensors(boosted.model->stage_module(), plugin->stages(), plugin->mesh(),
                            [&](std::size_t i) { return boosted.optimizer->gradients().gradient(i); });
    });
  };
  expect_close(gradients_with(std::make_shared<StackPolicy>()), gradients_with(std::make_shared<ReturnsAScalarToo>()));
}

// Five and four microbatches of one sample.
TEST(Irregular, Zero2AddsLowPrecisionGradientsInFloat32) {
  for (const char* precision : {"bfloat16", "float16"}) {
    const auto gradients = [&](int zero) {
      Config config = with_zero({.data = 2}, zero);
      config.precision = precision;
      config.schedule.microbatches.reset();
      config.schedule.microbatch_size = 1;
      return on_layout<TensorDict>(config, [&](World& world) {
        Rig rig(world, config);
        rig.booster.execute_pipeline(rig.batch(tokens(9)), rig.boosted);
        return complete_gradients(rig);
      });
    };
    const TensorDict expected = gradients(0), got = gradients(2);
    for (const auto& [name, tensor] : expected) {
      EXPECT_EQ(got.at(name).scalar_type(), torch::kFloat32);
      EXPECT_LE((got.at(name) - tensor).abs().max().item<double>(), 2e-6 * tensor.abs().max().item<double>() + 1e-9)
          << precision << " " << name;
    }
  }
}

}  // namespace
}  // namespace gantry::testing
