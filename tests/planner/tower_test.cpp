// Plans of models with an image encoder, whose layers are layers of the pipeline before those of the decoder.
#include "gantry/planner/tower.h"

#include <algorithm>
#include <functional>
#include <gtest/gtest.h>
#include <numeric>

#include "gantry/core/error.h"
#include "gantry/models/described/model_flops.h"
#include "gantry/models/described/vision_modules.h"
#include "gantry/planner/costs.h"
#include "gantry/planner/recompute.h"
#include "tower_models.h"

namespace gantry::planner {
namespace {

using models::DecoderSpec;

double weights_of(const DecoderSpec& spec, const auto& is_of) {
  double count = 0;
  for (const auto& parameter : models::parameter_shapes(spec))
    if (is_of(parameter.name))
      count += std::accumulate(parameter.shape.begin(), parameter.shape.end(), 1.0, std::multiplies<>());
  return count;
}

// The layers of the tower, the end of the encoder with the embedding, and the head are on different stages.
TEST(ImageTowers, StagesHoldAllParameters) {
  for (const std::string& family : kTowerFamilies) {
    SCOPED_TRACE(family);
    const DecoderSpec spec = tower_spec(family);
    const int tower = models::tower_layers(spec), decoder = static_cast<int>(spec.layers.size());
    ASSERT_EQ(tower, 2);
    const auto memory = tower_estimate(tower_step_of(spec), {.pipeline = 3, .layers = {1, 2, decoder - 1}}).memory;
    const auto held = [&](int stage) { return memory.at(stage).parameters / 4; };
    const double table = static_cast<double>(spec.vocabulary * spec.hidden);
    EXPECT_NEAR(held(0) + held(1) + held(2), parameter_count(spec) + (spec.tied ? table : 0), 1e-6);
    const models::EncoderPaths paths = models::encoder_paths(*spec.vision);
    const auto of_first = [&](const std::string& name) {
      return name.starts_with(paths.layers + ".0.") ||
             std::ranges::any_of(paths.before, [&](const auto& path) { return name.starts_with(path + "."); });
    };
    EXPECT_NEAR(held(0), weights_of(spec, of_first), 1e-6);
    // One stage holds a tied table once.
    const auto together = tower_estimate(tower_step_of(spec), {.pipeline = 2, .layers = {tower, decoder}}).memory;
    EXPECT_NEAR((together[0].parameters + together[1].parameters) / 4, parameter_count(spec), 1e-6);
    EXPECT_NEAR(tower_estimate(tower_step_of(spec), {}).memory[0].parameters / 4, parameter_count(spec), 1e-6);
  }
}

TEST(ImageTowers, TensorRanksHoldPartsOfTheLayers) {
  for (const std::string& family : kTowerFamilies) {
    SCOPED_TRACE(family);
    const DecoderSpec spec = tower_spec(family);
    const ModelParameters full = held_parameters(spec, 1, 1), half = held_parameters(spec, 2, 1);
    ASSERT_EQ(full.layers.size(), static_cast<std::size_t>(pipeline_layers(spec)));
    EXPECT_LT(half.layers.front().dense, 0.75 * full.layers.front().dense);
    EXPECT_GE(2 * half.layers.front().dense, full.layers.front().dense);
    EXPECT_EQ(half.patches.dense, full.patches.dense);
  }
}

double flops_in(const std::vector<Operation>& operations) {
  double flops = 0;
  for (const Operation& operation : operations) flops += operation.flops;
  return flops;
}

// Images of 4 x 4 patches and 4 features (Gemma 3), of 3 x 3 patches with a class token and 9 features (LLaVA), and one
// image of all tokens, 4 patches for each.
TEST(ImageTowers, LayersComputeThePatchesOfWholeImages) {
  for (const auto& [family, images, patches] :
       {std::tuple("gemma3", 16, 16), {"llava", 7, 10}, {"mistral3", 1, 256}, {"qwen2_5_vl", 1, 256}}) {
    SCOPED_TRACE(family);
    const Workload workload = tower_step_of(tower_spec(family));
    const SampleImages each = sample_images(*workload.model.vision, workload.sequence);
    EXPECT_EQ(each.images, images);
    EXPECT_EQ(each.patches, patches);
    const double rows = 2.0 * images * patches, hidden = static_cast<double>(workload.model.vision->tower.hidden);
    const PartOperations layer = layer_operations(workload, 0, {.microbatch = 2});
    EXPECT_NEAR(flops_in(layer.forward),
                rows * (2 * models::tower_layer_weights(*workload.model.vision) + 4 * patches * hidden), 1e-6);
    EXPECT_EQ(patch_numbers(workload, {.microbatch = 2}), rows * hidden);
  }
  const DecoderSpec gemma = tower_spec("gemma3");
  EXPECT_EQ(sample_images(*gemma.vision, 2).images, 1);  // at least one
}

// Ranks of stages without a layer of the decoder pass on patches.
TEST(ImageTowers, MessagesHavePatches) {
  const Workload workload = tower_step_of(tower_spec("qwen2_5_vl"), 1024);
  const auto hop = [&](const std::vector<int>& layers) {
    const Layout layout{.tensor = 2, .pipeline = 2, .layers = layers};
    Cluster cluster = with_ranks(load_cluster("a100_80g"), layout.ranks(), /*grows=*/true);
    cluster.within = {.bytes_per_second = 1, .latency_seconds = 0, .call_seconds = 0};
    return make_layout_costs(workload, layout, cluster, make_cost_table(workload, layout, cluster), {{0}, {1}}, layers)
        .hop;
  };
  EXPECT_EQ(hop({1, 3}), 4.0 * 4 * 1024 * 16);
  EXPECT_EQ(hop({2, 2}), 4.0 * 4 * 1024 * 16);
  EXPECT_EQ(hop({3, 1}), 4.0 * 1024 * 24);
}

TEST(ImageTowers, ADeeperTowerTakesMoreTimeAndMemory) {
  for (const std::string& family : kTowerFamilies) {
    double seconds = 0, memory = 0;
    for (const std::int64_t depth : {1, 2, 4, 8, 16}) {
      DecoderSpec spec = tower_spec(family);
      spec.vision->tower.layers = depth;
      const Estimate result = tower_estimate(tower_step_of(spec), {.microbatch = 2});
      EXPECT_GT(result.step_seconds, seconds) << family << " " << depth;
      EXPECT_GT(result.most_memory(), memory) << family << " " << depth;
      seconds = result.step_seconds;
      memory = result.most_memory();
    }
  }
}

// A frozen tower has no backward: it keeps nothing, and has no gradients and no states.
TEST(ImageTowers, AFrozenTowerTakesLess) {
  for (const auto& [text, patterns] :
       {std::pair(kGemma, "[\"vision_tower.*\"]"), {kQwen, "[\"visual.blocks.*\", \"visual.patch_embed.*\"]"}}) {
    const Layout layout{.pipeline = 2, .microbatch = 1, .balanced = true};
    const Estimate trained = tower_estimate(tower_request(text).workload, layout);
    const Workload frozen = tower_request(text, {std::string("train.freeze=") + patterns}).workload;
    const Estimate without = tower_estimate(frozen, layout);
    EXPECT_LT(without.memory[0].optimizer, trained.memory[0].optimizer);
    EXPECT_LT(without.memory[0].activations, 0.5 * trained.memory[0].activations);
    EXPECT_LT(without.step_seconds, trained.step_seconds);
  }
  EXPECT_THROW(tower_request(kGemma, {"train.freeze=[\"visual.*\"]"}), ConfigError);  // matches nothing
}

// The projector of a frozen tower needs no gradient of its input, and a trained embedding of patches one of each layer.
TEST(ImageTowers, GradientsEndAtTheFirstTrainedPart) {
  const auto seconds = [](const std::string& patterns) {
    return tower_estimate(tower_request(kQwen, {"train.freeze=[" + patterns + "]"}).workload, {}).step_seconds;
  };
  const double all = seconds("\"visual.*\""), layers = seconds("\"visual.blocks.*\"");
  EXPECT_GT(layers, 1.2 * all);
}

// The first stage of a frozen tower only has its parameters, in 16 bits.
TEST(ImageTowers, AStageOfAFrozenTowerKeepsNothing) {
  const Workload frozen = tower_request(kQwen, {"train.freeze=[\"visual.*\"]"}).workload;
  const Memory first = tower_estimate(frozen, {.pipeline = 2, .layers = {32, 36}}).memory.front();
  EXPECT_GT(first.parameters, 0);
  EXPECT_EQ(first.gradients, 0);
  EXPECT_EQ(first.optimizer, 0);
  EXPECT_EQ(first.activations, 0);
}

TEST(ImageTowers, AdaptersAreOnTheDecoder) {
  const std::vector<std::string> adapters = {"lora.target_modules=all-linear", "lora.r=8"};
  const TrainedPart trained = tower_request(kQwen, adapters).workload.trained;
  EXPECT_FALSE(trained.adapters.empty());
  for (const auto& [name, rank] : trained.adapters) EXPECT_FALSE(name.starts_with(models::kGridTower)) << name;
  EXPECT_FALSE(trained.trains("visual.blocks.0.attn.qkv.weight"));
  const TrainedPart saved =
      tower_request(kQwen, {"lora.target_modules=[q_proj]", "lora.modules_to_save=[visual.merger]"}).workload.trained;
  EXPECT_TRUE(saved.trains("visual.merger.mlp.0.weight"));
  EXPECT_FALSE(saved.trains("visual.blocks.0.attn.qkv.weight"));
  EXPECT_THROW(tower_request(kQwen, {"lora.target_modules=[attn.qkv]"}), ConfigError);
}

// The memory of automatic recomputation is that of an estimate.
TEST(ImageTowers, RecomputationCountsThem) {
  for (const std::string& family : kTowerFamilies) {
    const Workload workload = tower_step_of(tower_spec(family));
    const std::vector<int> layers = {1, 2, static_cast<int>(workload.model.layers.size()) - 1};
    const Layout layout{.pipeline = 3, .microbatch = 2, .microbatches = 4, .layers = layers};
    const auto schedule = schedule::generate("1f1b", 3, 4);
    const RecomputeCosts costs(workload, layout, schedule, layers);
    const Estimate plan = tower_estimate(workload, layout);
    for (int rank = 0; rank < 3; ++rank)
      EXPECT_NEAR(costs.memory(rank, Recompute::kNone, {0, 0, 0}).sum() / plan.memory[rank].sum(), 1, 1e-9)
          << family << " " << rank;
    EXPECT_LT(costs.memory(0, Recompute::kFull, {1, 0, 0}).activations,
              costs.memory(0, Recompute::kNone, {0, 0, 0}).activations);
  }
}

}  // namespace
}  // namespace gantry::planner
