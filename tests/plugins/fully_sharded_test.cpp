// ZeRO 3: parameters sharded over replicas, under any schedule. Results are bitwise identical to ZeRO 0 and
// equal one rank within tolerances. Memory follows the formula.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "../schedule/random_schedule.h"
#include "bytes_of_steps.h"
#include "gantry/booster/recipe.h"
#include "gantry/checkpoint/checkpoint.h"
#include "gantry/core/config/schedule_names.h"
#include "gantry/launch/launch.h"
#include "gantry/optimizers/gradient_buffers.h"
#include "gantry/tensors/libtorch.h"
#include "model_case.h"
#include "program.h"
#include "tiny_rig.h"

namespace gantry::testing {
namespace {

constexpr const char* kGathers[] = {"auto", "step", "window", "microbatch"};

Parallelism without(Parallelism how) {
  how.zero = 0;
  return how;
}

void expect_bits_of_zero_0(const ModelCase& what, const Parallelism& how) {
  expect_identical(run_case(what, without(how)), run_case(what, how), what.family + " " + describe(how));
}

// Without clipping, so that the norm, which is reduced in another order, affects no bit.
ModelCase unclipped(ModelCase what, const std::string& precision) {
  what.clip = 1e9;
  what.precision = precision;
  return what;
}

// First dimensions of 1, 2 and 3: most ranks hold no row of some parameters.
TEST(FullySharded, HasTheBitsOfZero0ForEveryNumberOfShards) {
  std::size_t index = 0;
  for (const int inner : {1, 2, 3}) {
    ModelCase what = unclipped({.family = "llama", .layers = 2, .heads = 2, .key_heads = 1, .width = 4}, "float32");
    what.keys = "{\"intermediate_size\": " + std::to_string(inner) + "}";
    what.tied = inner != 2;
    what.batches = {6, 5};
    for (const int data : layouts_to_run<int>({1, 2, 3, 4, 5}))
      for (const char* gather : turn_of<const char*>(index++, 2, {"step", "microbatch"}))
        expect_bits_of_zero_0(what, {.layout = {.data = data}, .microbatches = 2, .zero = 3, .gather = gather});
  }
}

TEST(FullySharded, HasTheBitsOfZero0InEveryPrecisionWithAnyOptimizer) {
  for (const char* precision : {"float64", "bfloat16"})
    for (const char* optimizer : {"adamw", "muon"}) {
      ModelCase what = unclipped({.layers = 4, .dropout = 0.1, .batches = {6, 5}}, precision);
      what.optimizer = optimizer;
      expect_bits_of_zero_0(what, {.layout = {.data = 2, .tensor = 2}, .microbatches = 2, .zero = 3});
      expect_bits_of_zero_0(what,
                            {.layout = {.pipeline = 2, .data = 2}, .schedule = "zb_h1", .microbatches = 2, .zero = 3});
    }
}

// Replicas of shards reduce each element in the order of all ranks.
TEST(FullySharded, HasTheBitsOfZero0WithReplicasOfShards) {
  const ModelCase what = unclipped({.layers = 3, .batches = {6, 5}}, "float32");
  for (const char* gather : {"step", "microbatch"}) {
    expect_bits_of_zero_0(what, {.layout = {.data = 4}, .microbatches = 2, .zero = 3, .shard = 2, .gather = gather});
    expect_bits_of_zero_0(what, {.layout = {.data = 4, .tensor = 2}, .zero = 3, .shard = 1, .gather = gather});
  }
  expect_layouts_equal({.layers = 3, .batches = {6, 5}},
                       {{.layout = {.data = 4}, .microbatches = 2, .zero = 3, .shard = 2},
                        {.layout = {.data = 2, .tensor = 2, .context = 2}, .zero = 3, .shard = 2},
                        {.layout = {.data = 4, .tensor = 2}, .sequence_parallel = true, .zero = 3, .shard = 2}});
}

// Every schedule with 1 to 3 stages. The other options cycle, each with its own period.
std::vector<Parallelism> covering_cases() {
  std::vector<Parallelism> all;
  int i = 0;
  for (const auto& known : schedule_names())
    for (const int pipeline : {1, 2, 3}) {
      const int tensor = pipeline < 3 && i % 2 == 0 ? 2 : 1;
      const int context = tensor == 1 && i % 3 == 0 ? 2 : 1;
      Parallelism how{
          .layout = {.pipeline = pipeline, .data = 2, .tensor = tensor, .context = context},
          .schedule = known.name,
          .microbatches = std::vector{2, 1, 7}[i % 3],
          .sequence_parallel = tensor == 2 && i % 4 == 0,
          .chunks = known.name == "interleaved_1f1b" || known.name == "breadth_first" ? 2 : default_chunks(known.name),
          .recompute = std::vector<const char*>{"none", "full", "none", "selective", "parts"}[i % 5],
          .zero = 3,
          .accumulation = i % 7 == 3 ? 3 : 1};
      how.gather = kGathers[(i + i / 4) % 4];
      all.push_back(how);
      ++i;
    }
  return all;
}

TEST(FullySharded, EqualsOneRankUnderEverySchedule) {
  ModelCase what{.layers = 6, .width = 8, .vocabulary = 37, .dropout = 0.1, .batches = {8, 5}};
  expect_layouts_equal(what, covering_cases());
}

TEST(FullySharded, EveryGatherUnderStagesOfSeveralChunks) {
  const ModelCase what{.layers = 6, .width = 8, .batches = {6, 6}};
  std::vector<Parallelism> layouts;
  for (const char* gather : kGathers)
    for (const char* schedule : {"interleaved_1f1b", "zb_v"}) {
      layouts.push_back({.layout = {.pipeline = 2, .data = 2},
                         .schedule = schedule,
                         .microbatches = 3,
                         .chunks = std::string(schedule) == "zb_v" ? 2 : 3,
                         .zero = 3});
      layouts.back().gather = gather;
    }
  expect_layouts_equal(what, layouts);
}

// Schedules from files: any placement of stages, any valid order, full and split backwards, overlapped pairs.
TEST(FullySharded, EqualsOneRankUnderRandomSchedules) {
  const ScratchFolder scratch;
  schedule::testing::RandomSchedule random(27);
  for (int i = 0; i < (is_long_form() ? 30 : 10) && !HasFailure(); ++i) {
    const schedule::Schedule any = random.make(3, 2, 3);
    const std::string file = scratch.write("random" + std::to_string(i) + ".csv", schedule::to_csv(any));
    Parallelism how{.layout = {.pipeline = any.ranks(), .data = 2}, .schedule = file, .microbatches = any.microbatches};
    how.zero = 3;
    how.gather = kGathers[i % 4];
    expect_layouts_equal({.layers = 6, .width = 8, .vocabulary = 37, .batches = {6, 6}}, {how});
  }
}

// KV heads that ranks share, bias tables that all layers share, two lists of layers, untied heads.
TEST(FullySharded, OtherFamilies) {
  ModelCase llama{.family = "llama", .layers = 3, .heads = 6, .key_heads = 2, .batches = {6, 5}};
  llama.tied = false;
  expect_layouts_equal(llama, {{.layout = {.data = 2, .tensor = 4}, .microbatches = 2, .zero = 3},
                               {.layout = {.pipeline = 3, .data = 2}, .schedule = "zb_h1", .zero = 3}});
  for (const char* family : {"t5", "bert"})
    expect_layouts_equal({.family = family, .layers = 3, .batches = {6, 5}},
                         {{.layout = {.data = 3}, .microbatches = 2, .zero = 3},
                          {.layout = {.pipeline = 2, .data = 2, .tensor = 2}, .microbatches = 2, .zero = 3}});
}

// --- Memory ---

constexpr double kWide = kBytesWidth, kOfLayer = 12 * kWide * kWide + 13 * kWide, kOutside = (64 + 64 + 8 + 2) * kWide;
constexpr int kLayersHeld = 10;

BytesOfSteps train_sharded(int replicas, const std::string& precision, int vocabulary = 64) {
  Config config = layout_config({.data = replicas});
  config.parallel.zero = 3;
  config.precision = precision;
  return bytes_of_steps(config, vocabulary);
}

// Bytes per parameter for the gradient, AdamW's two moments, and the float32 values or master weights.
constexpr double kStateBytes = 16;

// Values or master weights, gradients and moments are sharded. Within a step, the shards of gradients that
// are not reduced yet take no memory. At the peak a rank also holds at least two unsharded layers and the
// gradients of one, or one layer and its gradients twice, the second time in the message of the reduction. A
// rank that is ahead keeps what it contributed to a reduction until the others have read it: at most the
// gradients of two layers, and the incoming shards.
TEST(FullySharded, MemoryIsThatOfTheFormula) {
  for (const char* precision : {"float32", "bfloat16"})
    for (const int replicas : {2, 4}) {
      const double values = precision == std::string("bfloat16") ? 2 : 4;
      const double states = (kLayersHeld * kOfLayer + kOutside) * kStateBytes / replicas;
      const BytesOfSteps held = train_sharded(replicas, precision);
      const double sums_to_come = (kOfLayer + kOutside) * 4 / replicas;
      const double least = states - sums_to_come + kOfLayer * std::max(2 * values + 4, values + 2 * 4);
      const double most = least + 2 * kOfLayer * 4 * (1 + 1.0 / replicas);
      fmt::print("{} dp {}: {:.3f} MB held, {:.3f} MB at the peak; by the formula {:.3f}, and {:.3f} to {:.3f}\n",
                 precision, replicas, static_cast<double>(held.held) / 1e6, static_cast<double>(held.peak) / 1e6,
                 states / 1e6, least / 1e6, most / 1e6);
      EXPECT_NEAR(static_cast<double>(held.held), states, 0.01 * states) << precision << " dp " << replicas;
      EXPECT_GE(static_cast<double>(held.peak), 0.95 * least) << precision << " dp " << replicas;
      EXPECT_LE(static_cast<double>(held.peak), 1.05 * most) << precision << " dp " << replicas;
    }
}

// Embedding and head are separate units. At the peak one of them is unsharded, with its full gradient, while
// the next layer is being gathered. A rank that is ahead also keeps the gradient that it contributed until
// the others have read it, and the incoming shards. This additional memory is bounded, and at least one of a
// few runs has none of it. In the backward of the head no gradient is reduced yet. In the backward of the
// embedding all are reduced, and its values are released.
TEST(FullySharded, EmbeddingOrHeadIsUnshardedAtATime) {
  constexpr int kWords = 16'384;
  constexpr double kTable = kWords * kWide, kParameters = kLayersHeld * kOfLayer + 2 * kTable + (8 + 2) * kWide;
  for (const char* precision : {"float32", "bfloat16"}) {
    const double values = precision == std::string("bfloat16") ? 2 : 4;
    for (const int replicas : {2, 4}) {
      const double states = kParameters * kStateBytes / replicas;
      // A bfloat16 result before it is added to the float32 gradient.
      const double product = values == 2 ? 2 : 0;
      const double in_head = states - kParameters * 4 / replicas + kTable * (values + product + 4) + kOfLayer * values;
      const double in_embedding = states + kTable * 4;
      const double peak = std::max(in_head, in_embedding);
      const double ahead = kTable * 4 * (1 + 1.0 / replicas);
      BytesOfSteps held = train_sharded(replicas, precision, kWords);
      for (int again = 0; again < 4 && static_cast<double>(held.peak) > 1.05 * peak; ++again) {
        EXPECT_LE(static_cast<double>(held.peak), 1.05 * peak + ahead) << precision << " dp " << replicas;
        held = train_sharded(replicas, precision, kWords);
      }
      fmt::print("{} dp {}, {} words: {:.3f} MB held, {:.3f} MB at the peak; by the formula {:.3f} and {:.3f}\n",
                 precision, replicas, kWords, static_cast<double>(held.held) / 1e6,
                 static_cast<double>(held.peak) / 1e6, states / 1e6, peak / 1e6);
      EXPECT_NEAR(static_cast<double>(held.held), states, 0.01 * states) << precision << " dp " << replicas;
      EXPECT_NEAR(static_cast<double>(held.peak), peak, 0.05 * peak) << precision << " dp " << replicas;
    }
  }
}

// --- Local shards between steps ---

std::int64_t bytes_of_rows(const Rig& rig) {
  std::int64_t bytes = 0;
  for (const auto& held : rig.boosted.model->stage_module_unmaterialized().parameters)
    bytes += static_cast<std::int64_t>(held.tensor.storage().nbytes());
  return bytes;
}

void train_step(
    Rig& rig, int seed, const std::function<void()>& before_the_optimizer = [] {}) {
  rig.booster.execute_pipeline(rig.batch(tokens(4, seed)), rig.boosted);
  before_the_optimizer();
  rig.boosted.optimizer->step();
  rig.boosted.optimizer->zero_grad();
}

Config rows_of_bfloat16(int replicas) {
  Config config = tiny({.data = replicas});
  config.precision = "bfloat16";
  config.parallel.zero = 3;
  return config;
}

// Reading weights at any time gives the same values, and the next step releases the local shards again.
TEST(FullySharded, RowsWithMastersComeBackForWhoReadsThem) {
  enum class Read { kAtTheEnd, kAfterEachStep, kBeforeEachOptimizerStep };
  const auto trained = [](Read when) {
    return on_layout<TensorDict>(rows_of_bfloat16(3), [when](World& world) {
      Rig rig(world, rows_of_bfloat16(3));
      EXPECT_GT(bytes_of_rows(rig), 0) << "weights may be loaded before the first step";
      for (int step = 0; step < 3; ++step) {
        train_step(rig, step, [&] {
          EXPECT_EQ(bytes_of_rows(rig), 0);
          if (when == Read::kBeforeEachOptimizerStep) rig.weights();
        });
        EXPECT_EQ(bytes_of_rows(rig) > 0, when == Read::kBeforeEachOptimizerStep) << "step " << step;
        if (when == Read::kAfterEachStep) rig.weights();
      }
      return rig.weights();
    });
  };
  const TensorDict weights = trained(Read::kAtTheEnd);
  for (const Read when : {Read::kAfterEachStep, Read::kBeforeEachOptimizerStep})
    for (const auto& [name, weight] : trained(when)) EXPECT_TRUE(torch::equal(weight, weights.at(name))) << name;
}

// An audit, an evaluation and a checkpoint in between; a second run resumes from the checkpoint.
TEST(FullySharded, RowsWithMastersAreAuditedSavedAndLoaded) {
  const ScratchFolder scratch;
  Config config = rows_of_bfloat16(2);
  config.train.audit_every = 1;
  const auto went_on = [&](bool resumes) {
    return on_layout<TensorDict>(config, [&](World& world) {
      Rig rig(world, config);
      if (resumes)
        load_checkpoint(require_checkpoint(scratch / "saved"), rig.booster.state(rig.boosted), rig.plugin->mesh());
      else
        train_step(rig, 0);
      if (!resumes)
        save_checkpoint({.directory = scratch / "saved", .step = 1}, rig.booster.state(rig.boosted),
                        rig.plugin->mesh());
      rig.booster.execute_pipeline(rig.batch(tokens(4, 7)), rig.boosted, {.forward_only = true});
      train_step(rig, 1);
      train_step(rig, 2);
      return rig.weights();
    });
  };
  const TensorDict straight = went_on(false), resumed = went_on(true);
  for (const auto& [name, weight] : straight) EXPECT_TRUE(torch::equal(weight, resumed.at(name))) << name;
}

// The local shards behind a reference that was obtained before the step are released.
TEST(FullySharded, RowsThatAreAwayAreReadWithAnError) {
  const auto said = on_layout<std::string>(rows_of_bfloat16(2), [&](World& world) -> std::string {
    Rig rig(world, rows_of_bfloat16(2));
    const StageModule& module = rig.boosted.model->stage_module();
    train_step(rig, 0);
    try {
      return "read " + std::to_string(module.parameters.front().tensor.sum().item<double>());
    } catch (const std::exception& error) {
      return error.what();
    }
  });
  EXPECT_NE(said.find("call boosted.model->stage_module()"), std::string::npos) << said;
}

// --- Rejected configurations ---

std::string refusal_of(Config config) {
  std::string said;
  launch(config, [&](World& world) {
    try {
      HybridParallelPlugin plugin(world, config);
      Booster booster{std::make_unique<HybridParallelPlugin>(world, config)};
      auto model = build_model(config);
      booster.boost(model, build_optimizer(config, *model), cross_entropy());
    } catch (const ConfigError& error) {
      if (world.is_main()) said = error.what();
    }
  });
  return said;
}

TEST(FullySharded, WhatItCantIsRefusedByName) {
  Config config = layout_config({.data = 2});
  config.model.policy = "gpt2";
  config.model.config_json = R"({"n_layer": 2, "n_head": 2, "n_embd": 8, "vocab_size": 16, "n_positions": 8})";
  config.parallel.zero = 3;
  config.parallel.shard = 3;
  EXPECT_EQ(refusal_of(config),
            "parallel.shard: 3 does not divide the 2 ranks of data * context; expected a divisor of that number; use "
            "auto for "
            "all of them");
}

}  // namespace
}  // namespace gantry::testing
