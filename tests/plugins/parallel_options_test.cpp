// Options of the plugin as typed values: those of a configuration, their checks, and a step with them.
#include <gmock/gmock.h>

#include "gantry/booster/booster.h"
#include "gantry/booster/recipe.h"
#include "gantry/core/error.h"
#include "gantry/plugins/hybrid_parallel_plugin.h"
#include "gantry/tensors/libtorch.h"
#include "ranks_outcome.h"
#include "small_stack.h"

namespace gantry::testing {
namespace {

using ::testing::HasSubstr;

Mesh mesh_of(int ranks, int pipeline, int tensor) { return Mesh::hybrid(ranks, pipeline, 0, tensor); }

TEST(ParallelOptions, AreThoseOfTheConfiguration) {
  const Config config = Config::parse(R"(
model: {policy: llama, config: {hidden_size: 8, num_hidden_layers: 4, num_attention_heads: 2, intermediate_size: 12,
                                vocab_size: 11}}
parallel: {tensor: 2, pipeline: 2, data: 2, sequence_parallel: true, tensor_overlap: 2, zero: 3, shard: 2,
           gather: microbatch, bucket_mb: 3}
schedule: {name: interleaved_1f1b, microbatches: 4, chunks: 2, recompute: full, recompute_layers: [1]}
optimizer: {name: adamw, clip_grad_norm: 0.5}
precision: float16
loss_scale: {initial: 8}
train: {steps: 2, seed: 7, audit_every: 3, offload: both, ema: 0.9}
)");
  const ParallelOptions options = parallel_options(config, mesh_of(8, 2, 2));
  EXPECT_EQ(options.policy, "llama");
  EXPECT_EQ(options.seed, 7u);
  EXPECT_TRUE(options.axes.tensor.sequence_parallel);
  EXPECT_EQ(options.axes.tensor.overlap, 2);
  EXPECT_EQ(options.axes.vocabulary, VocabularyPlace::kStages);
  EXPECT_EQ(options.zero.stage, 3);
  EXPECT_EQ(options.zero.shard, 2);
  EXPECT_EQ(options.zero.gather, schedule::Gather::kMicrobatch);
  EXPECT_EQ(options.zero.bucket_mb, 3);
  EXPECT_EQ(options.schedule.name, "interleaved_1f1b");
  EXPECT_EQ(options.schedule.microbatches, 4);
  EXPECT_EQ(options.schedule.chunks, 2);
  EXPECT_EQ(options.recompute.how, Recomputation::kFull);
  EXPECT_EQ(options.recompute.layers, std::vector<int>{1});
  EXPECT_EQ(options.precision.parameters, torch::kFloat16);
  EXPECT_EQ(options.precision.loss_scale->initial, 8);
  EXPECT_EQ(options.update.clip_grad_norm, 0.5);
  EXPECT_EQ(options.update.ema, 0.9);
  EXPECT_EQ(options.update.audit_every, 3);
  EXPECT_TRUE(options.devices.offload.state && options.devices.offload.activations);
  check(options, mesh_of(8, 2, 2));
}

TEST(ParallelOptions, DefaultsAreThoseOfAnEmptyConfiguration) {
  const Mesh mesh = mesh_of(1, 1, 1);
  const ParallelOptions given, read = parallel_options(Config(), mesh);
  check(given, mesh);
  EXPECT_EQ(read.zero.stage, given.zero.stage);
  EXPECT_EQ(read.zero.gather, given.zero.gather);
  EXPECT_EQ(read.zero.bucket_mb, given.zero.bucket_mb);
  EXPECT_EQ(read.schedule.name, given.schedule.name);
  EXPECT_EQ(read.recompute.how, given.recompute.how);
  EXPECT_EQ(read.axes.context.method, given.axes.context.method);
  EXPECT_EQ(read.experts.balance, given.experts.balance);
  EXPECT_EQ(read.experts.dispatch, given.experts.dispatch);
  EXPECT_FALSE(read.precision.parameters || read.precision.loss_scale);
  EXPECT_FALSE(read.devices.offload.any());
}

std::string refusal_of(const std::function<void(ParallelOptions&)>& change, const Mesh& mesh) {
  ParallelOptions options;
  change(options);
  try {
    check(options, mesh);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(ParallelOptions, WrongValuesAreRefusedWithTheKeyOfAFile) {
  const Mesh mesh = mesh_of(4, 2, 2);
  const auto said = [&](const std::function<void(ParallelOptions&)>& change) { return refusal_of(change, mesh); };
  EXPECT_EQ(said([](ParallelOptions&) {}), "");
  EXPECT_THAT(said([](ParallelOptions& options) { options.schedule.name = "1f1c"; }), HasSubstr("schedule.name"));
  EXPECT_THAT(said([](ParallelOptions& options) { options.schedule.microbatches = 0; }),
              HasSubstr("schedule.microbatches"));
  EXPECT_THAT(said([](ParallelOptions& options) { options.schedule.layers = "ballanced"; }),
              HasSubstr("schedule.layers"));
  EXPECT_THAT(said([](ParallelOptions& options) { options.zero.stage = 4; }), HasSubstr("parallel.zero"));
  EXPECT_THAT(said([](ParallelOptions& options) { options.zero.bucket_mb = -1; }), HasSubstr("parallel.bucket_mb"));
  EXPECT_THAT(said([](ParallelOptions& options) { options.zero.gather = schedule::Gather::kAround; }),
              HasSubstr("parallel.gather: the option has no value of its type; expected step, window, microbatch"));
  EXPECT_THAT(said([](ParallelOptions& options) { options.recompute.how = static_cast<Recomputation>(9); }),
              HasSubstr("schedule.recompute"));
  EXPECT_THAT(said([](ParallelOptions& options) { options.axes.tensor.overlap = 0; }), HasSubstr("tensor_overlap"));
  EXPECT_THAT(said([](ParallelOptions& options) { options.update.clip_grad_norm = -1; }),
              HasSubstr("optimizer.clip_grad_norm"));
}

TEST(ParallelOptions, ThePluginRefusesThem) {
  const RanksOutcome said = outcome_of(stack_config({}), [](World& world) {
    ParallelOptions options;
    options.schedule.name = "zb_w";
    HybridParallelPlugin plugin(world, options);
  });
  EXPECT_EQ(said.code, ConfigError::kExitCode);
  EXPECT_THAT(said.text, HasSubstr("schedule.name"));
}

// Losses of two steps.
template <class Options>
std::vector<double> losses_with(World& world, const Config& config, const Options& options) {
  Booster booster(std::make_unique<HybridParallelPlugin>(world, options));
  const auto model = build_stack(config);
  Boosted boosted = booster.boost(model, build_optimizer(config, *model), cross_entropy());
  auto& mesh = booster.mesh();
  const Batch batch = replica_part(make_batch(stack_batch(8)), mesh.size("dp"), mesh.coordinate("dp"));
  std::vector<double> losses;
  for (int step = 0; step < 2; ++step) {
    losses.push_back(*booster.execute_pipeline(batch, boosted, {.broadcast_loss = true}).loss);
    boosted.optimizer->step();
    boosted.optimizer->zero_grad();
  }
  return losses;
}

TEST(ParallelOptions, TrainLikeTheConfiguration) {
  Config config = stack_config({.pipeline = 2, .data = 2});
  config.parallel.zero = 2;
  config.schedule.name = "gpipe";
  config.schedule.microbatches = 2;
  config.schedule.recompute = "full";
  config.optimizer.clip_grad_norm = 0.1;
  const RanksOutcome said = outcome_of(config, [&](World& world) {
    ParallelOptions options;
    options.policy = "stack";
    options.seed = config.train.seed;
    options.zero.stage = 2;
    options.schedule = {.name = "gpipe", .microbatches = 2};
    options.recompute.how = Recomputation::kFull;
    options.update.clip_grad_norm = 0.1;
    EXPECT_EQ(losses_with(world, config, options), losses_with(world, config, config));
  });
  EXPECT_EQ(said.code, 0) << said.text;
}

}  // namespace
}  // namespace gantry::testing
