// Multi-token prediction: every layout gives the numbers of one rank, documents and padding end the predictions, and
// unsupported combinations are refused. tests/models/families_test.cpp compares with tests/golden/mtp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gantry/booster/booster.h"
#include "gantry/booster/recipe.h"
#include "gantry/launch/launch.h"
#include "gantry/models/decoder.h"
#include "gantry/models/described/decoder_family.h"
#include "gantry/models/described/model_flops.h"
#include "gantry/models/described/work_of_keys.h"
#include "gantry/models/model_family.h"
#include "gantry/nn/mtp_tokens.h"
#include "gantry/optimizers/gradient_buffers.h"
#include "gantry/plugins/hybrid_parallel_plugin.h"
#include "gantry/policies/decoder.h"
#include "gantry/schedule/stages/layers_per_stage.h"
#include "gantry/tensors/libtorch.h"
#include "generation_case.h"
#include "model_case.h"
#include "thrown_by.h"

namespace gantry::testing {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Three layers, of which the first is dense, and two depths.
constexpr const char* kDeepseek = R"({"num_key_value_heads": 4, "q_lora_rank": 10, "kv_lora_rank": 8,
    "qk_nope_head_dim": 5, "qk_rope_head_dim": 4, "v_head_dim": 6, "n_routed_experts": 8, "num_experts_per_tok": 3,
    "moe_intermediate_size": 7, "n_shared_experts": 2, "n_group": 4, "topk_group": 2, "first_k_dense_replace": 1,
    "num_nextn_predict_layers": 2, "mtp_loss_scaling_factor": 0.3})";
constexpr const char* kGlm = R"({"head_dim": 8, "use_qk_norm": true, "attention_bias": true, "n_routed_experts": 4,
    "num_experts_per_tok": 2, "moe_intermediate_size": 7, "n_shared_experts": 1, "first_k_dense_replace": 1,
    "num_nextn_predict_layers": 1, "mtp_loss_scaling_factor": 0.5})";

ModelCase mtp_case(const char* family, const char* keys, bool tied) {
  return {.family = family,
          .layers = 3,
          .heads = 4,
          .key_heads = 2,
          .vocabulary = 53,
          .tied = tied,
          .tokens = 8,
          .batches = {5, 4},
          .keys = keys};
}

Parallelism mtp_layout(Layout layout, int microbatches, int zero = 0, const char* layers = "default") {
  Parallelism how{.layout = layout, .microbatches = microbatches, .sequence_parallel = layout.tensor > 1, .zero = zero};
  how.layers = layers;
  return how;
}

Parallelism with_recompute(Parallelism how, const char* recompute, const char* schedule = "1f1b", int chunks = 1) {
  how.recompute = recompute;
  how.schedule = schedule;
  how.chunks = chunks;
  return how;
}

TEST(Mtp, EveryLayoutGivesTheNumbersOfOneRank) {
  Parallelism deferred = mtp_layout({.tensor = 2}, 2);
  deferred.logit_limit = 600;
  deferred.sequence_parallel = false;
  expect_layouts_equal(
      mtp_case("deepseek_v3", kDeepseek, false),
      {deferred, mtp_layout({.pipeline = 3}, 2, 0, "Ett|tmm|L"), mtp_layout({.data = 2, .context = 2}, 2, 3),
       with_recompute(mtp_layout({.pipeline = 2, .tensor = 2}, 2, 0, "Ett|tmmL"), "full", "zb_h1"),
       with_recompute(mtp_layout({.pipeline = 3, .data = 2}, 2, 3, "Ettt|mm|L"), "parts"),
       with_recompute(mtp_layout({.data = 2, .tensor = 2, .expert = 2}, 2, 1), "full"),
       with_recompute(mtp_layout({.pipeline = 2, .context = 2}, 1), "selective"),
       with_recompute(mtp_layout({.pipeline = 2, .data = 2}, 4, 2, "Et|t|t|mmL"), "none", "interleaved_1f1b", 2)});
}

// The table is on the first stage, on that of the prediction, and as the head on the last one.
TEST(Mtp, ATiedTable) {
  expect_layouts_equal(mtp_case("glm4_moe", kGlm, true),
                       {mtp_layout({.pipeline = 3}, 2, 0, "Ettt|m|L"), mtp_layout({.pipeline = 2, .data = 2}, 2, 3),
                        mtp_layout({.tensor = 2}, 1)});
}

TEST(Mtp, PaddedAndPackedRows) {
  ModelCase what = mtp_case("deepseek_v3", kDeepseek, false);
  what.padded = true;
  what.first_counted = 2;
  expect_layouts_equal(what, {mtp_layout({.pipeline = 2, .tensor = 2}, 2, 0, "Ettt|mmL")});
  what.padded = false;
  what.documents = {4, 1, 3};
  what.causal_labels = true;
  expect_layouts_equal(what,
                       {mtp_layout({.pipeline = 2, .context = 2}, 2), mtp_layout({.data = 2, .tensor = 2}, 1, 2)});
}

// The losses and gradients of one step on one rank.
struct MtpStep {
  double loss = 0, mtp_loss = 0;
  TensorDict gradients;
};

MtpStep run_mtp_step(const TensorDict& batch) {
  ModelCase what = mtp_case("deepseek_v3", kDeepseek, false);
  Config config = layout_config({});
  config.model.policy = what.family;
  config.model.config_json = config_keys(what);
  config.precision = "float64";
  config.train.seed = 3;
  MtpStep step;
  const int code = launch(config, [&](World& world) {
    Booster booster(std::make_unique<HybridParallelPlugin>(world, config));
    auto model = build_model(config);
    auto boosted = booster.boost(model, build_optimizer(config, *model), build_criterion(config));
    const StepResult result = booster.execute_pipeline(make_batch(batch), boosted);
    step.loss = *result.loss;
    step.mtp_loss = result.added_losses.at("mtp_loss");
    auto& gradients = boosted.optimizer->gradients();
    gradients.complete();
    const auto& parameters = boosted.model->stage_module().parameters;
    for (std::size_t i = 0; i < parameters.size(); ++i)
      if (const torch::Tensor gradient = gradients.gradient(i); gradient.defined())
        step.gradients.set(parameters[i].placement.name, gradient.clone());
  });
  EXPECT_EQ(code, 0);
  return step;
}

// The last document is shorter than the number of depths.
TEST(Mtp, PackedDocumentsAreThoseOfSeparateRows) {
  const std::vector<std::int64_t> lengths = {4, 3, 1};
  const torch::Tensor ids = (torch::arange(8, torch::kInt64) * 7 + 3).remainder(53).unsqueeze(0);
  torch::Tensor documents = torch::empty_like(ids), labels = torch::full_like(ids, -100);
  torch::Tensor apart = torch::zeros({3, 4}, torch::kInt64), mask = torch::zeros_like(apart),
                labels_apart = torch::full_like(apart, -100);
  for (std::int64_t document = 0, begin = 0; document < 3; begin += lengths[document++]) {
    const std::int64_t length = lengths[document];
    const torch::Tensor next = ids[0].narrow(0, begin + (length > 1 ? 1 : 0), length - 1);
    documents[0].narrow(0, begin, length).fill_(document);
    labels[0].narrow(0, begin, length - 1).copy_(next);
    apart[document].narrow(0, 0, length).copy_(ids[0].narrow(0, begin, length));
    mask[document].narrow(0, 0, length).fill_(1);
    labels_apart[document].narrow(0, 0, length - 1).copy_(next);
  }
  const MtpStep packed = run_mtp_step({{"input_ids", ids}, {"document_ids", documents}, {"labels", labels}});
  const MtpStep separate = run_mtp_step({{"input_ids", apart}, {"attention_mask", mask}, {"labels", labels_apart}});
  EXPECT_NEAR(packed.loss, separate.loss, 1e-12);
  EXPECT_NEAR(packed.mtp_loss, separate.mtp_loss, 1e-12);
  EXPECT_GT(packed.mtp_loss, 0.1);
  for (const auto& [name, gradient] : separate.gradients)
    EXPECT_LE((packed.gradients.at(name) - gradient).abs().max().item<double>(), 1e-12) << name;
}

std::vector<std::int64_t> numbers_in(const torch::Tensor& tensor) {
  const torch::Tensor whole = tensor.contiguous();
  return {whole.data_ptr<std::int64_t>(), whole.data_ptr<std::int64_t>() + whole.numel()};
}

TEST(MtpTokens, LabelsEndWithTheDocumentThePaddingAndTheRow) {
  const torch::Tensor ids = torch::tensor({{11, 12, 13, 14, 15, 16}}, torch::kInt64);
  const torch::Tensor labels = torch::tensor({{12, 13, 14, 15, 16, 17}}, torch::kInt64);  // a longer text
  const auto depth = [](const TensorDict& batch, const char* name, int number) {
    return numbers_in(batch.at(name)[0].select(1, number - 1));
  };
  const TensorDict plain = nn::with_mtp_tokens({{"input_ids", ids}}, labels, 2);
  EXPECT_THAT(depth(plain, nn::kMtpIds, 1), ElementsAre(12, 13, 14, 15, 16, 0));
  EXPECT_THAT(depth(plain, nn::kMtpIds, 2), ElementsAre(13, 14, 15, 16, 0, 0));
  EXPECT_THAT(depth(plain, nn::kMtpLabels, 1), ElementsAre(13, 14, 15, 16, 17, -100));
  EXPECT_THAT(depth(plain, nn::kMtpLabels, 2), ElementsAre(14, 15, 16, 17, -100, -100));
  const torch::Tensor documents = torch::tensor({{0, 0, 0, 1, 1, 1}}, torch::kInt64);
  const TensorDict packed = nn::with_mtp_tokens({{"input_ids", ids}, {"document_ids", documents}}, labels, 2);
  EXPECT_THAT(depth(packed, nn::kMtpLabels, 1), ElementsAre(13, -100, -100, 16, 17, -100));
  EXPECT_THAT(depth(packed, nn::kMtpLabels, 2), ElementsAre(-100, -100, -100, 17, -100, -100));
  const torch::Tensor mask = torch::tensor({{0, 1, 1, 1, 1, 0}}, torch::kInt64);
  const TensorDict padded = nn::with_mtp_tokens({{"input_ids", ids}, {"attention_mask", mask}}, labels, 1);
  EXPECT_THAT(depth(padded, nn::kMtpLabels, 1), ElementsAre(-100, 14, 15, 16, -100, -100));
  EXPECT_THAT(nn::count_mtp_labels(packed, 2), ElementsAre(3, 1));
  EXPECT_THAT(thrown_by([&] { nn::with_mtp_tokens({{"labels", labels}}, labels, 1); }), HasSubstr("input_ids"));
}

// A model generates without these layers.
TEST(Mtp, GenerationDoesNotDependOnIt) {
  const std::vector<GenerationJob> jobs = {
      {.name = "greedy", .prompts = {{5, 7, 9}, {1, 2, 3, 4}}, .options = {.max_new_tokens = 6}}};
  std::vector<std::vector<TokenIds>> tokens;
  for (const char* keys : {"{}", R"({"mtp_loss_scaling_factor": 0.1})"})
    for (const int stages : {1, 2}) {
      Config config;
      config.model.path = golden_model("mtp/deepseek_v3");
      config.model.config_json = keys;
      tokens.push_back(tokens_of(generate_in({.pipeline = stages}, config, jobs).at(0)));
    }
  for (const auto& each : tokens) EXPECT_EQ(each, tokens.front());
}

TEST(Mtp, LayersPerStageKeepTheLayersTogether) {
  const LayerWork work{.layers = {1, 1, 1, 1, 1, 1}, .last = 1, .mtp = 2};
  ScheduleConfig schedule;
  const auto counts = [&](const char* layers, std::vector<int> ranks) {
    schedule.layers = layers;
    return layers_per_stage(schedule, work, ranks);
  };
  EXPECT_THAT(counts("default", {0, 1, 2}), ElementsAre(2, 2, 2));
  EXPECT_THAT(counts("default", {0, 1, 2, 3}), ElementsAre(1, 1, 2, 2));
  EXPECT_THAT(counts("Ett|tt|mm|L", {0, 1, 2, 3}), ElementsAre(2, 2, 2, 0));
  const auto balanced = counts("balanced", {0, 1, 2});
  EXPECT_EQ(balanced[0] + balanced[1] + balanced[2], 6);
  EXPECT_GE(balanced[2], 2);
  EXPECT_THAT(thrown_by([&] { counts("Ett|ttmL", {0, 1}); }), HasSubstr("has 1 layers of multi-token prediction"));
  EXPECT_THAT(thrown_by([&] { counts("Ett|ttttL", {0, 1}); }), HasSubstr("has 0 layers of multi-token prediction"));
}

json keys_with(const char* more) {
  json keys = json::parse(config_keys(mtp_case("deepseek_v3", kDeepseek, false)));
  keys.update(json::parse(more));
  return keys;
}

TEST(Mtp, LayersCountInWorkAndOperations) {
  const auto with = models::decoder_spec("deepseek_v3", keys_with("{}"));
  const auto without = models::decoder_spec("deepseek_v3", keys_with(R"({"mtp_loss_scaling_factor": 0})"));
  EXPECT_EQ(without.layers.size(), 3u);
  EXPECT_EQ(models::mtp_depths(with), 2);
  const auto work = models::layer_work_of(with), main = models::layer_work_of(without);
  EXPECT_EQ(work.mtp, 2);
  const double projection = 2 * 24 * 24;
  EXPECT_EQ(work.layers.at(3), main.layers.at(2) + projection);
  EXPECT_EQ(work.last, 3 * main.last);
  EXPECT_EQ(models::parameter_count(with),
            models::parameter_count(without) + 2 * (models::parameter_count(without) -
                                                    models::parameter_count(models::decoder_spec(
                                                        "deepseek_v3", keys_with(R"({"mtp_loss_scaling_factor": 0,
                                                            "num_hidden_layers": 2})"))) +
                                                    projection + 3 * 24));
}

TEST(Mtp, WhatDoesNotFitIsRefused) {
  const auto spec = [](const char* more) { models::decoder_spec("deepseek_v3", keys_with(more)); };
  EXPECT_THAT(thrown_by([&] { spec(R"({"num_nextn_predict_layers": 0})"); }),
              HasSubstr("num_nextn_predict_layers is 0 or missing"));
  EXPECT_THAT(thrown_by([&] { spec(R"({"mtp_loss_scaling_factor": -1})"); }), HasSubstr("mtp_loss_scaling_factor"));
  EXPECT_THAT(thrown_by([&] { spec(R"({"architectures": ["DeepseekV3ForSequenceClassification"]})"); }),
              HasSubstr("a head for labels"));
  const auto resolve = [](const std::string& family, const auto& change) {
    Config config;
    config.model.policy = family;
    config.model.config_json = family == "llama" ? R"({"mtp_loss_scaling_factor": 0.1})" : keys_with("{}").dump();
    change(config);
    return thrown_by([&] { resolve_model(config); });
  };
  EXPECT_THAT(resolve("llama", [](Config&) {}), HasSubstr("mtp_loss_scaling_factor"));
  EXPECT_THAT(resolve("deepseek_v3", [](Config&) {}), HasSubstr("no error"));
  const auto refuses = [&](const char* key, const auto& change) {
    EXPECT_THAT(resolve("deepseek_v3", change), AllOf(HasSubstr(key), HasSubstr("mtp_loss_scaling_factor"))) << key;
  };
  refuses("lora", [](Config& config) { config.lora.r = 4; });
  refuses("train.objective", [](Config& config) { config.train.objective.name = "dpo"; });
  refuses("train.label_smoothing", [](Config& config) { config.train.label_smoothing = 0.1; });
  refuses("train.device_graphs", [](Config& config) { config.train.device_graphs = true; });
  refuses("parallel.vocabulary", [](Config& config) { config.parallel.vocabulary = "pipeline"; });
}

TEST(Mtp, OneStageHasItsLayersTheNormAndTheTable) {
  const models::Decoder model(models::decoder_spec("deepseek_v3", keys_with("{}")));
  const DecoderPolicy policy;
  EXPECT_THAT(policy.held_layers(*model, 1, 3, {2, 5}),
              ElementsAre("layers.2", "layers.3", "layers.4", "norm", "embed_tokens"));
  EXPECT_THAT(policy.held_layers(*model, 2, 3, {5, 5}), ElementsAre("lm_head"));
  EXPECT_THAT(thrown_by([&] {
                policy.held_layers(*model, 1, 3, {2, 4});
              }),
              HasSubstr("the layers of multi-token prediction, 3 to 4, are in several stages"));
}

TEST(Mtp, AForwardInTrainingWithoutTheStepIsRefused) {
  models::Decoder model(models::decoder_spec("deepseek_v3", keys_with("{}")));
  const TensorDict batch{{"input_ids", torch::arange(6).view({1, 6})}};
  EXPECT_THAT(thrown_by([&] { model->forward(batch); }), HasSubstr("outside of execute_pipeline"));
  model->eval();
  EXPECT_EQ(model->forward(batch).at("logits").sizes(), (std::vector<std::int64_t>{1, 6, 53}));
}

}  // namespace
}  // namespace gantry::testing
