// Adapters on every family: fused and latent projections, routed
// and shared experts, weights that files store transposed.
#include <algorithm>
#include <filesystem>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "family_case.h"
#include "gantry/checkpoint/adapter.h"
#include "gantry/checkpoint/checkpoint.h"
#include "gantry/checkpoint/safetensors.h"
#include "gantry/core/sharding/adapter_split.h"
#include "gantry/tensors/libtorch.h"
#include "lora_rig.h"
#include "program.h"

namespace gantry::testing {
namespace {

using nlohmann::json;

std::vector<std::string> adapted_families() {
  auto folders = family_cases(GANTRY_SOURCE_DIR "/tests/golden/families");
  std::erase_if(folders, [](const std::string& folder) { return has_one_stage(folder); });
  folders.emplace_back(GANTRY_SOURCE_DIR "/tests/golden/gpt2");  // its files store transposed weights
  return folders;
}

class LoraFamilies : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Cases, LoraFamilies, ::testing::ValuesIn(adapted_families()),
                         [](const auto& info) { return std::filesystem::path(info.param).filename().string(); });

struct AdaptedModel {
  std::string folder;
  std::vector<std::string> targets = {"all-linear"};
  std::vector<std::string> saved = {};
};

Config adapted_config(const AdaptedModel& model, const LoraLayout& how) {
  Config config = layout_config(how.layout);
  config.model.path = model.folder;
  config.model.config_json = extra_keys(model.folder);
  config.lora = {.r = 2, .alpha = 3, .target_modules = model.targets, .modules_to_save = model.saved};
  config.precision = "float64";
  config.parallel.sequence_parallel = how.sequence_parallel;
  config.schedule.microbatches = 1;
  config.optimizer.lr = 3e-2;
  config.optimizer.eps = 1e-3;
  config.comm.threads_per_rank = 1;
  return resolve_model(std::move(config));
}

TensorDict batch_of(const std::string& folder) {
  if (has_images(folder)) return testing::family_batch(folder);
  const bool has_inputs = std::filesystem::exists(folder + "/inputs.safetensors");
  TensorDict batch;
  for (const auto& [name, tensor] : read_safetensors(folder + (has_inputs ? "/inputs" : "/batch") + ".safetensors"))
    batch.set(name, tensor.to(torch::kInt64));
  return batch;
}

struct AdaptedRun {
  std::vector<double> losses;
  TensorDict weights;
  torch::Tensor logits;
};

// Runs two steps, and returns the logits after them.
AdaptedRun run_adapted(const Config& config, const TensorDict& batch, const std::string& save = {}) {
  std::mutex lock;
  AdaptedRun run;  // guarded by the lock
  const int code = start_ranks()(config, [&](World& world) {
    Rig rig(world, config);
    load_weights(config, rig.boosted, rig.plugin->mesh());
    rig.boosted.model->eval();  // without the model's own dropout
    std::vector<double> losses;
    for (int step = 0; step < 2; ++step) {
      losses.push_back(*rig.booster.execute_pipeline(make_batch(batch), rig.boosted, {.broadcast_loss = true}).loss);
      rig.boosted.optimizer->step();
      rig.boosted.optimizer->zero_grad();
    }
    const TensorDict weights = rig.weights();
    const auto result =
        rig.booster.execute_pipeline(make_batch(batch), rig.boosted, {.return_outputs = true, .forward_only = true});
    if (!save.empty())
      save_checkpoint({.directory = save,
                       .step = 2,
                       .config_text = config.to_yaml(),
                       .model_config = json::parse(config.model.config_json),
                       .policy = config.model.policy},
                      rig.plugin->state(rig.boosted), rig.plugin->mesh());
    const std::lock_guard guard(lock);
    if (rig.plugin->stages().holds_last() && rig.plugin->mesh().coordinate("tp") == 0)
      run.logits = result.outputs.at("logits").cpu();
    if (world.is_main()) run.losses = losses, run.weights = weights;
  });
  EXPECT_EQ(code, 0);
  return run;
}

void expect_one_ranks_numbers(const AdaptedModel& model) {
  const ScratchFolder scratch;
  const TensorDict batch = batch_of(model.folder);
  const AdaptedRun one = run_adapted(adapted_config(model, {}), batch, scratch / "checkpoints");
  EXPECT_NE(one.losses[0], one.losses[1]);
  const bool joint = has_joint_loss(model.folder);  // its layers must be on one stage
  for (const LoraLayout& how :
       {LoraLayout{.layout = {.tensor = 2}, .sequence_parallel = true},
        LoraLayout{.layout = {.pipeline = joint ? 1 : 2, .tensor = std::min(3, largest_tensor(model.folder))}}}) {
    SCOPED_TRACE(describe(how));
    const AdaptedRun got = run_adapted(adapted_config(model, how), batch);
    for (int step = 0; step < 2; ++step) EXPECT_NEAR(got.losses[step], one.losses[step], 1e-10);
    expect_close(one.weights, got.weights);
    if (::testing::Test::HasFailure()) return;
  }
  merge_adapter(scratch / "checkpoints/step-000002", "", scratch / "merged", {.type = torch::kFloat64});
  Config merged = adapted_config(model, {});
  merged.model.path = scratch / "merged";
  merged.lora = {};
  merged.optimizer.lr = 1e-30;  // too small to change the weights
  const AdaptedRun full = run_adapted(merged, batch);
  EXPECT_LE((full.logits - one.logits).abs().max().item<double>(), 5e-5);
}

TEST_P(LoraFamilies, EveryLayoutAndTheMergedModelHaveOneRanksNumbers) { expect_one_ranks_numbers({GetParam()}); }

// Stacks without a gate, which files store one expert at a
// time, and transposed stacks whose inputs are weighted.
TEST(LoraStacks, OfFurtherFormsHaveOneRanksNumbers) {
  for (const auto& [name, input] :
       {std::pair("nemotron_h", "experts.up_proj"), {"llama4_text", "experts.gate_up_proj"}}) {
    SCOPED_TRACE(name);
    expect_one_ranks_numbers(
        {GANTRY_SOURCE_DIR "/tests/golden/families/" + std::string(name), {input, "experts.down_proj"}});
  }
}

// The projector of images, or the full image encoder, is trained together with the adapters of the decoder.
TEST(LoraImages, PartsOfAnEncoderAreTrainedInFull) {
  for (const auto& [name, saved] : {std::pair("gemma3_image", "multi_modal_projector"),
                                    {"mistral3_image", "vision_tower"},
                                    {"qwen2_5_vl_image", "model.visual.merger"}}) {
    SCOPED_TRACE(name);
    expect_one_ranks_numbers(
        {GANTRY_SOURCE_DIR "/tests/golden/families/" + std::string(name), {"q_proj", "down_proj"}, {saved}});
  }
}

}  // namespace
}  // namespace gantry::testing
