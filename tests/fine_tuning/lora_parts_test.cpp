// Adapters of embeddings, routers and stacks of experts, compared with one rank in float64 in every layout,
// and with the numbers and files of PEFT (tests/golden/lora).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mutex>
#include <nlohmann/json.hpp>

#include "family_case.h"
#include "gantry/checkpoint/adapter.h"
#include "gantry/checkpoint/checkpoint.h"
#include "gantry/checkpoint/safetensors.h"
#include "gantry/core/sharding/adapter_split.h"
#include "gantry/models/peft_names.h"
#include "gantry/nn/embedding.h"
#include "gantry/nn/experts.h"
#include "gantry/policies/sharder.h"
#include "gantry/tensors/libtorch.h"
#include "lora_rig.h"
#include "program.h"
#include "thrown_by.h"

namespace gantry::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

// --- Every layout ---

constexpr const char* kGptOssOfFive =
    R"({"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 16, "vocab_size": 31,
        "intermediate_size": 9, "num_local_experts": 5, "num_experts_per_tok": 2, "head_dim": 6,
        "max_position_embeddings": 8, "sliding_window": 3})";

void expect_layouts(const char* family, const char* keys, const std::vector<std::string>& targets,
                    const std::vector<LoraLayout>& layouts) {
  const LoraRun one = run_lora(parts_config(family, keys, targets, {}));
  EXPECT_NE(one.losses[1], one.losses[2]);
  for (const auto& how : layouts) {
    expect_same_run(one, run_lora(parts_config(family, keys, targets, how)), describe(how));
    if (::testing::Test::HasFailure()) return;
  }
}

std::vector<LoraLayout> layouts_of_experts() {
  return {{.layout = {.tensor = 2}},
          {.layout = {.tensor = 3}, .sequence_parallel = true, .recompute = "full"},
          {.layout = {.pipeline = 2, .tensor = 2}, .schedule = "zb_h1"},
          {.layout = {.data = 2, .expert = 2}, .zero = 1},
          {.layout = {.tensor = 2, .expert = 2}, .sequence_parallel = true},
          {.layout = {.data = 2, .tensor = 2, .expert = 4}, .sequence_parallel = true, .zero = 2},
          {.layout = {.pipeline = 2, .data = 2, .context = 2, .expert = 2}, .zero = 1},
          {.layout = {.data = 2}, .zero = 3}};
}

TEST(LoraParts, ExpertsRoutersAndEmbeddingsOfMixtral) {
  expect_layouts("mixtral", kMixtralOfFive,
                 {"q_proj", "embed_tokens", "gate", "experts.gate_up_proj", "experts.down_proj"}, layouts_of_experts());
}

// Weights that are stored transposed, biases, and adapters of one of the two stacks.
TEST(LoraParts, ExpertsOfGptOss) {
  expect_layouts("gpt_oss", kGptOssOfFive, {"experts.gate_up_proj"},
                 {layouts_of_experts()[1], layouts_of_experts()[4]});
  expect_layouts("gpt_oss", kGptOssOfFive, {"experts.down_proj", "router.weight"},
                 {layouts_of_experts()[0], layouts_of_experts()[5]});
}

// With two stages, the last one trains nothing.
TEST(LoraParts, TiedTablesAlone) {
  expect_layouts("gpt2", kTiedGpt2, {"wte", "wpe"},
                 {{.layout = {.tensor = 3}},
                  {.layout = {.tensor = 2}, .sequence_parallel = true, .recompute = "full"},
                  {.layout = {.pipeline = 2, .tensor = 2}},
                  {.layout = {.pipeline = 2}, .schedule = "zb_h1"},
                  {.layout = {.data = 2, .tensor = 2}, .zero = 2},
                  {.layout = {.tensor = 2, .context = 2}, .sequence_parallel = true},
                  {.layout = {.data = 2, .tensor = 2}, .sequence_parallel = true, .zero = 3}});
}

// Without boost(), the backward itself reduces the partial sums.
TEST(LoraParts, SplitModulesOfOnesOwnSumInTheBackward) {
  struct Table : torch::nn::Module {
    Table() {
      table = register_module("table", nn::Embedding(7, 4));
      set_dtype(*this, torch::kFloat64);
      table->add_adapter({.rank = 2, .scale = 1.5});
    }
    nn::Embedding table{nullptr};
  };
  for (const bool vocabulary : {true, false})
    run_ranks(3, [&](World&, ProcessGroupMesh& mesh) {
      ProcessGroup& group = mesh["tp"];
      const auto build = [] {
        const DeferredInit deferred;
        return std::make_shared<Table>();
      };
      const auto dense = build(), split = build();
      if (vocabulary)
        parallelize_module(*split, group, {{"table", Vocab{}}});
      else
        parallelize_module(*split, group, {{"table", SequenceParallel{.dim = 0}}});
      for (const auto& model : {dense, split}) {
        materialize(*model, 3);
        const torch::NoGradGuard no_grad;
        const Range rows = vocabulary && model == split ? shard(0, 7, 3).ranges(group.rank()).front() : Range{0, 7};
        model->table->lora_a.copy_(
            torch::sin(torch::arange(14, torch::kFloat64)).view({7, 2}).narrow(0, rows.begin, rows.size()));
      }
      const torch::Tensor tokens = torch::tensor({1, 6, 3, 1, 0, 5}, torch::kInt64);
      const torch::Tensor expected = dense->table(tokens), got = split->table(tokens);
      const Range mine = vocabulary ? Range{0, 6} : shard(0, 6, 3).ranges(group.rank()).front();
      EXPECT_LE((got - expected.narrow(0, mine.begin, mine.size())).abs().max().item<double>(), 1e-12);
      expected.pow(2).sum().backward();
      got.pow(2).sum().backward();
      EXPECT_LE((split->table->lora_b.grad() - dense->table->lora_b.grad()).abs().max().item<double>(), 1e-12);
    });
}

TEST(AdapterSplit, FactorsOfStacksLieAsTheStackDoes) {
  const ExpertShape shape{.experts = 5, .hidden = 8, .width = 9};
  const Expert at_sync{.gradient_sum = GradientSum::kAtSync};
  const std::vector<Axis> axes = {{"tp", 3}};
  const auto up = split_of_stack_adapter("gate_up_proj", at_sync, shape, axes);
  EXPECT_EQ(up.at("gate_up_proj_lora_A").partial_axes, std::vector<std::string>{"tp"});
  EXPECT_EQ(up.at("gate_up_proj_lora_B").shards.at(0).dim, 1);
  EXPECT_EQ(up.at("gate_up_proj_lora_B").shards.at(0).local_size(0), 6);
  const auto down = split_of_stack_adapter("down_proj", at_sync, shape, axes);
  EXPECT_EQ(down.at("down_proj_lora_A").shards.at(0).dim, 2);
  EXPECT_EQ(down.at("down_proj_lora_B").partial_axes, std::vector<std::string>{"tp"});
  const auto full = split_of_stack_adapter("down_proj", {.partitioned = true}, shape, axes);
  for (const char* factor : {"down_proj_lora_A", "down_proj_lora_B"}) {
    EXPECT_EQ(full.at(factor).view, axis::View::kExpert);
    EXPECT_EQ(full.at(factor).shards.at(0).dim, 0);
    EXPECT_EQ(full.at(factor).shards.at(0).local_size(0), 2);
  }
}

// --- PEFT's numbers and files ---

class LoraPartsCases : public ::testing::TestWithParam<std::string> {
 protected:
  std::string folder() const { return GANTRY_SOURCE_DIR "/tests/golden/lora/" + GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Cases, LoraPartsCases,
                         ::testing::Values("experts", "turned_experts", "tied_tables", "tied_tokens", "own_tokens",
                                           "qlora_nf4", "qlora_nf4_double"),
                         [](const auto& info) { return info.param; });

Config parts_case(const std::string& folder, const LoraLayout& how) {
  Config config = layout_config(how.layout);
  config.model.path = folder;
  config.lora.path = folder + "/adapter";
  config.parallel.sequence_parallel = how.sequence_parallel;
  return resolve_model(std::move(config));
}

TensorDict parts_batch(const std::string& folder) {
  TensorDict batch = read_safetensors(folder + "/inputs.safetensors");
  const torch::Tensor labels = batch.at("labels");
  torch::Tensor next = torch::full_like(labels, -100);
  next.narrow(1, 0, labels.size(1) - 1).copy_(labels.narrow(1, 1, labels.size(1) - 1));
  batch.set("labels", next);
  return batch;
}

// Runs one forward and backward. With `save`, it also saves a checkpoint of the adapter as it was read.
FamilyOutcome run_parts(const std::string& folder, const Config& config, const std::string& save = {}) {
  const TensorDict batch = parts_batch(folder);
  std::mutex lock;
  FamilyOutcome outcome;  // guarded by the lock
  const int code = start_ranks()(config, [&](World& world) {
    Rig rig(world, config);
    load_weights(config, rig.boosted, rig.plugin->mesh());
    rig.boosted.model->eval();
    if (!save.empty())
      save_checkpoint({.directory = save,
                       .step = 1,
                       .config_text = config.to_yaml(),
                       .model_config = json::parse(config.model.config_json),
                       .policy = config.model.policy},
                      rig.plugin->state(rig.boosted), rig.plugin->mesh());
    const auto result =
        rig.booster.execute_pipeline(make_batch(batch), rig.boosted, {.return_outputs = true, .broadcast_loss = true});
    rig.boosted.optimizer->gradients().complete();
    const TensorDict gradients = rig.gradients();
    const std::lock_guard guard(lock);
    if (rig.plugin->stages().holds_last() && rig.plugin->mesh().coordinate("tp") == 0)
      outcome.outputs.set("logits", result.outputs.at("logits").cpu());
    if (!world.is_main()) return;
    outcome.loss = outcome.ce_loss = *result.loss;
    std::vector<std::string> names;
    for (const auto& [name, gradient] : gradients) names.push_back(name);
    if (!config.lora.is_on()) return;
    const auto family = models::families().at(config.model.policy).tensor_names(json::parse(config.model.config_json));
    outcome.gradients = to_hugging_face(models::trained_names(names, config.lora, family), gradients);
  });
  EXPECT_EQ(code, 0);
  return outcome;
}

// One layout per axis that the case can use.
std::vector<LoraLayout> layouts_of_case(const std::string& name) {
  std::vector<LoraLayout> layouts = {{}, {.layout = {.tensor = 2}, .sequence_parallel = true}};
  // One of the cases has a single layer.
  layouts.push_back({.layout = {.pipeline = name == "qlora_nf4_double" ? 1 : 2, .tensor = 3}});
  if (name.ends_with("experts")) layouts.push_back({.layout = {.tensor = 2, .expert = 2}, .sequence_parallel = true});
  return layouts;
}

TEST_P(LoraPartsCases, LogitsLossAndGradientsInManyLayouts) {
  for (const LoraLayout& how : layouts_of_case(GetParam())) {
    expect_family(folder(), run_parts(folder(), parts_case(folder(), how)), describe(how));
    if (HasFailure()) return;
  }
}

TEST_P(LoraPartsCases, FilesThereAndBackAndMergedWeights) {
  const ScratchFolder scratch;
  const TensorDict expected = read_safetensors(folder() + "/expected.safetensors");
  const std::vector<LoraLayout> layouts = layouts_of_case(GetParam());
  for (const LoraLayout& how : {layouts[0], layouts[2]}) {
    SCOPED_TRACE(describe(how));
    const Config config = parts_case(folder(), how);
    const std::string save = scratch / describe(how), out = scratch / ("out" + describe(how));
    run_parts(folder(), config, save);
    export_adapter(save + "/step-000001", out);
    const TensorDict written = read_safetensors(out + "/adapter_model.safetensors"),
                     theirs = read_safetensors(folder() + "/adapter/adapter_model.safetensors");
    for (const auto& [name, tensor] : theirs)
      if (!name.ends_with("base_layer.weight")) EXPECT_TRUE(torch::equal(written.at(name), tensor)) << name;
    for (const auto& [name, tensor] : written) EXPECT_TRUE(theirs.contains(name)) << name;
    const json keys = json::parse(read_file(out + "/adapter_config.json")),
               their_keys = json::parse(read_file(folder() + "/adapter/adapter_config.json"));
    for (const auto& [key, value] : keys.items())
      if (key != "base_model_name_or_path") EXPECT_EQ(value, their_keys[key]) << key;
    for (const auto& from : {save + "/step-000001", out}) {
      merge_adapter(from, folder(), scratch / "merged", {.type = torch::kFloat32});
      Config merged = layout_config({});
      merged.model.path = scratch / "merged";
      const FamilyOutcome full = run_parts(folder(), resolve_model(merged));
      EXPECT_LE((full.outputs.at("logits") - expected.at("logits")).abs().max().item<double>(), 5e-5);
      std::filesystem::remove_all(scratch / "merged");
    }
  }
}

// --- Rejected configurations ---

std::string refused(const char* family, const char* keys, const LoraConfig& lora) {
  Config config = parts_config(family, keys, {}, {});
  config.lora = lora;
  return thrown_by([&] { build_model(config); });
}

TEST(LoraPartsRefusals, SayWhatToName) {
  EXPECT_THAT(refused("mixtral", kMixtralOfFive, {.r = 2, .alpha = 3, .target_modules = {"experts"}}),
              HasSubstr("name experts.gate_up_proj and experts.down_proj"));
  EXPECT_THAT(refused("mixtral", kMixtralOfFive, {.r = 2, .alpha = 3, .target_modules = {"gate_up_prok"}}),
              HasSubstr("did you mean"));
  EXPECT_THAT(
      refused("mixtral", kMixtralOfFive, {.r = 2, .alpha = 3, .dropout = 0.1, .target_modules = {"experts.down_proj"}}),
      HasSubstr("lora.dropout"));
  EXPECT_THAT(refused("mixtral", kMixtralOfFive, {.r = 2, .alpha = 3, .dropout = 0.1, .target_modules = {"gate"}}),
              HasSubstr("lora.dropout"));
  EXPECT_EQ(
      refused("mixtral", kMixtralOfFive, {.r = 2, .alpha = 3, .dropout = 0.1, .target_modules = {"embed_tokens"}}),
      "no error");
}

}  // namespace
}  // namespace gantry::testing
