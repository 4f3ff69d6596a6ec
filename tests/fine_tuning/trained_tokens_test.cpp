// Rows of the embedding that are trained together with adapters, and with them those of a tied output layer:
// every layout compared with one rank in float64, checkpoints, and the errors. PEFT's numbers and files are
// in lora_parts_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gantry/booster/recipe.h"
#include "gantry/checkpoint/adapter.h"
#include "gantry/checkpoint/checkpoint.h"
#include "gantry/checkpoint/format/adapter_config.h"
#include "gantry/checkpoint/safetensors.h"
#include "gantry/core/sharding/adapter_split.h"
#include "gantry/nn/embedding.h"
#include "gantry/nn/trained_rows.h"
#include "gantry/tensors/libtorch.h"
#include "grid.h"
#include "lora_rig.h"
#include "program.h"
#include "thrown_by.h"

namespace gantry::testing {
namespace {

using ::testing::HasSubstr;

const std::string kTokenCases = GANTRY_SOURCE_DIR "/tests/golden/lora/";
const std::vector<int> kTrained = {30, 5, 60, 0, 17};  // 5 is the padding of tied_tokens, 60 occurs as no input
constexpr const char* kDelta = "embed_tokens.trainable_tokens_delta";

Config token_config(const std::string& name, const LoraLayout& how) {
  Config config = layout_config(how.layout);
  config.model.path = kTokenCases + name;
  config.lora = {.r = 3, .alpha = 5, .target_modules = {"q_proj", "v_proj"}, .trainable_token_indices = kTrained};
  train_in_layout(config, how);
  return resolve_model(std::move(config));
}

void expect_one_ranks_tokens(const std::string& name, const std::vector<LoraLayout>& few) {
  const LoraRun one = run_from_base(token_config(name, {}));
  EXPECT_EQ(one.gradients.size(), 2u * 2 * 2 + 1);
  EXPECT_GT(one.gradients.at(kDelta).abs().max().item<double>(), 1e-3);
  for (const auto& how : is_long_form() ? all_lora_layouts() : layouts_to_run(few)) {
    expect_same_run(one, run_from_base(token_config(name, how)), describe(how));
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(TrainedTokensGrid, WithATiedHead) {
  expect_one_ranks_tokens(
      "tied_tokens",
      {{.layout = {.tensor = 3}},
       {.layout = {.tensor = 2}, .sequence_parallel = true, .recompute = "full"},
       {.layout = {.pipeline = 2, .tensor = 3}, .sequence_parallel = true},
       {.layout = {.pipeline = 2}, .schedule = "zb_h1"},
       {.layout = {.data = 2}, .zero = 2},
       {.layout = {.data = 3}, .zero = 3, .gather = "microbatch"},
       {.layout = {.pipeline = 2, .data = 2, .tensor = 2}, .sequence_parallel = true, .zero = 3, .schedule = "zb_h1"},
       {.layout = {.data = 2, .context = 2}, .zero = 3, .gather = "step", .recompute = "full"}});
}

TEST(TrainedTokensGrid, WithAnOwnHead) {
  expect_one_ranks_tokens("own_tokens", {{.layout = {.pipeline = 2, .tensor = 3}, .sequence_parallel = true},
                                         {.layout = {.data = 2, .tensor = 2}, .zero = 3},
                                         {.layout = {.tensor = 2, .expert = 2}, .sequence_parallel = true}});
}

TEST(TrainedTokens, StartAsTheRowsOfTheBase) {
  const torch::Tensor table =
      read_safetensors(kTokenCases + "tied_tokens/model.safetensors").at("model.embed_tokens.weight");
  for (const LoraLayout& how : {LoraLayout{}, LoraLayout{.layout = {.pipeline = 2, .tensor = 3}},
                                LoraLayout{.layout = {.data = 2, .tensor = 2}, .zero = 3}}) {
    const torch::Tensor start = run_from_base(token_config("tied_tokens", how), 0).weights.at(kDelta);
    ASSERT_EQ(start.size(0), 5);
    for (std::size_t place = 0; place < kTrained.size(); ++place)
      EXPECT_TRUE(torch::equal(start[static_cast<std::int64_t>(place)], table[kTrained[place]].to(torch::kFloat64)));
  }
}

// The look-ups of the padding row give its values no gradient, as in LibTorch.
TEST(TrainedTokens, ReplaceTheRowsOfATable) {
  nn::Embedding table(torch::nn::EmbeddingOptions(7, 4).padding_idx(2));
  table->to(torch::kFloat64);
  table->weight.set_requires_grad(false);
  table->train_tokens({6, 2});
  torch::Tensor& values = table->trained_tokens()->values;
  EXPECT_TRUE(torch::equal(values, table->weight.index_select(0, torch::tensor({6, 2}))));
  EXPECT_FALSE(table->awaits_tokens());
  const torch::Tensor fresh = torch::arange(8, torch::kFloat64).view({2, 4});
  {
    const torch::NoGradGuard no_grad;
    values.copy_(fresh);
  }
  const torch::Tensor found = table(torch::tensor({{1, 6, 2}, {6, 0, 6}}, torch::kInt64));
  EXPECT_TRUE(torch::equal(found[0][0], table->weight[1]));
  EXPECT_TRUE(torch::equal(found[0][1], fresh[0]));
  EXPECT_TRUE(torch::equal(found[0][2], fresh[1]));
  found.sum().backward();
  EXPECT_TRUE(torch::equal(values.grad(), torch::tensor({{3., 3., 3., 3.}, {0., 0., 0., 0.}}, torch::kFloat64)));
  EXPECT_THAT(thrown_by([&] { table->train_tokens({1}); }), HasSubstr("already has an adapter or trained tokens"));
}

TEST(TrainedTokens, RunsGoOnToTheSameBitsAndInAnotherLayout) {
  const ScratchFolder scratch;
  const Config config = token_config("tied_tokens", {.layout = {.data = 2, .tensor = 2}, .zero = 1});
  const LoraRun full = run_from_base(config, 4);
  run_from_base(config, 2, {}, [&](Rig& rig) {
    save_checkpoint({.directory = scratch.path(), .step = 2}, rig.plugin->state(rig.boosted), rig.plugin->mesh());
  });
  const auto stored = read_checkpoint_tensors(scratch / "step-000002", "model");
  EXPECT_EQ(stored.size(), 9u);
  const auto resume = [&](Rig& rig) {
    load_checkpoint(scratch / "step-000002", rig.plugin->state(rig.boosted), rig.plugin->mesh());
  };
  const LoraRun rest = run_from_base(config, 2, resume, {}, 2);
  EXPECT_EQ(rest.losses.back(), full.losses.back());
  for (const auto& [name, values] : full.weights) EXPECT_TRUE(torch::equal(values, rest.weights.at(name))) << name;
  const LoraRun elsewhere =
      run_from_base(token_config("tied_tokens", {.layout = {.pipeline = 2, .tensor = 3}}), 2, resume, {}, 2);
  EXPECT_NEAR(elsewhere.losses.back(), full.losses.back(), 1e-10);
  expect_close(full.weights, elsewhere.weights);
}

TEST(TrainedTokens, InBfloat16LossesFollowThoseOfFloat64) {
  const LoraRun expected = run_from_base(token_config("tied_tokens", {}), 4);
  Config config = token_config("tied_tokens", {.layout = {.tensor = 2}, .sequence_parallel = true});
  config.precision = "bfloat16";
  const LoraRun run = run_from_base(config, 4);
  for (std::size_t step = 0; step < 4; ++step) EXPECT_NEAR(run.losses[step], expected.losses[step], 0.05);
}

TEST(TrainedTokensRefusals, OneLineEach) {
  const auto refused = [](const std::function<void(Config&)>& change) {
    Config config = token_config("own_tokens", {});
    change(config);
    return thrown_by([&] { build_model(config); });
  };
  EXPECT_THAT(refused([](Config& config) { config.lora.trainable_token_indices = {61}; }),
              HasSubstr("lora.trainable_token_indices: token 61 is outside the vocabulary of 61 tokens; expected 0 to "
                        "60; remove the token"));
  EXPECT_THAT(refused([](Config& config) { config.lora.modules_to_save = {"embed_tokens"}; }),
              HasSubstr("embed_tokens is also in lora.modules_to_save; expected only one of the two"));
  EXPECT_THAT(refused([](Config& config) { config.lora.target_modules = {"embed_tokens"}; }),
              HasSubstr("embed_tokens is also in lora.target_modules"));
  EXPECT_THAT(refused([](Config& config) {
                config.model.path.clear();
                config.model.policy = "bert";
                config.model.config_json = "{}";
                config.lora.target_modules = {"query"};
              }),
              HasSubstr("lora.trainable_token_indices: the model is not a described decoder"));
  Config config = lora_config({});
  config.lora.trainable_token_indices = {3};
  on_layout<int>(config, [&](World& world) {
    Rig rig(world, config);
    EXPECT_THAT(thrown_by([&] { load_weights(config, rig.boosted, rig.plugin->mesh()); }),
                HasSubstr("lora.trainable_token_indices: embed_tokens has only initial weights"));
    return 0;
  });
}

TEST(TrainedTokensRefusals, FilesAndKeys) {
  const ScratchFolder scratch;
  const auto read = [&](const std::string& tokens) {
    scratch.write("adapter_config.json", R"({"peft_type": "LORA", "target_modules": ["q_proj"], )"
                                         R"("trainable_token_indices": )" +
                                             tokens + "}");
    return thrown_by([&] { read_adapter_config(scratch.path()); });
  };
  EXPECT_EQ(read("[4, 2]"), "no error");
  EXPECT_EQ(read("null"), "no error");
  EXPECT_THAT(read(R"({"lm_head": [4]})"), HasSubstr("expected a list of token ids for the embedding"));
  EXPECT_THAT(read("[4, -1]"), HasSubstr("expected a list of token ids"));
  EXPECT_THAT(read("[4, 4]"), HasSubstr("expected each token once"));
  const auto parse = [](const std::string& tokens) {
    return Config::parse("model: {path: x}\nlora: {target_modules: [q_proj], trainable_token_indices: " + tokens + "}");
  };
  const Config config = parse("[7, 3]");
  EXPECT_EQ(Config::parse(config.to_yaml()).lora.trainable_token_indices, (std::vector<int>{7, 3}));
  EXPECT_THAT(thrown_by([&] { parse("3"); }), HasSubstr("the value is not a list; expected a list of token ids"));
  EXPECT_THAT(thrown_by([&] { parse("[3, 3]"); }), HasSubstr("token 3 is listed twice"));
  EXPECT_THAT(thrown_by([&] { parse("[-3]"); }), HasSubstr("whole numbers of at least 0"));
  CheckpointInfo info;
  info.path = "run";
  info.policy = "llama";
  info.config_text = config.to_yaml();
  Config other = config;
  other.model.policy = "llama";
  other.lora.trainable_token_indices = {3, 7};
  EXPECT_THAT(thrown_by([&] { require_same_model(info, other); }),
              HasSubstr("the checkpoint has adapters of r 8, alpha 8, tokens 7 3; expected r 8, alpha 8, tokens 3 7"));
}

// Another base may have fewer tokens.
TEST(TrainedTokensRefusals, MergingIntoASmallerVocabulary) {
  const ScratchFolder scratch;
  EXPECT_THAT(thrown_by([&] {
                merge_adapter(kTokenCases + "tied_tokens/adapter", kTokenCases + "../families/gemma", scratch / "out");
              }),
              HasSubstr("adapter"));
}

}  // namespace
}  // namespace gantry::testing
