// Initial values of adapters (lora.init_lora_weights): those that start from the weights of the base, in
// every layout compared with one rank in float64, and their files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gantry/booster/recipe.h"
#include "gantry/checkpoint/adapter.h"
#include "gantry/checkpoint/checkpoint.h"
#include "gantry/checkpoint/format/adapter_config.h"
#include "gantry/checkpoint/safetensors.h"
#include "gantry/core/sharding/adapter_split.h"
#include "gantry/nn/linear.h"
#include "gantry/tensors/deferred_init.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/principal_factors.h"
#include "gantry/tensors/quantized_weight.h"
#include "lora_rig.h"
#include "program.h"
#include "thrown_by.h"

namespace gantry::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

const std::string kStartCase = GANTRY_SOURCE_DIR "/tests/golden/lora/dora";

torch::Tensor wavy(std::int64_t rows, std::int64_t columns) {
  return torch::sin(torch::arange(rows * columns, torch::kFloat64).square() * 0.37 + 1).view({rows, columns});
}

double largest_of(const torch::Tensor& tensor) { return tensor.abs().max().item<double>(); }

// The approximation by the largest singular values and their vectors.
torch::Tensor low_rank(const torch::Tensor& matrix, std::int64_t rank) {
  const auto [u, s, v] = torch::linalg_svd(matrix, /*full_matrices=*/false);
  return torch::mm(u.narrow(1, 0, rank) * s.narrow(0, 0, rank), v.narrow(0, 0, rank));
}

TEST(PrincipalFactors, AreTheBestApproximation) {
  for (const torch::Tensor& matrix : {wavy(9, 6), wavy(5, 8)}) {
    const auto [a, b] = principal_factors(matrix, 3, std::nullopt);
    EXPECT_LE(largest_of(torch::mm(b, a) - low_rank(matrix, 3)), 1e-12);
    EXPECT_LE(largest_of(torch::mm(a, a.t()) - torch::mm(b.t(), b)), 1e-12) << "equal parts of the values";
    EXPECT_LE(largest_of(b.amax(0) - b.abs().amax(0)), 0) << "signs";
    const auto near = principal_factors(matrix, 3, 99);
    EXPECT_LE(largest_of(torch::mm(near.b, near.a) - low_rank(matrix, 3)), 1e-6);
  }
  EXPECT_THAT(thrown_by([] { principal_factors(wavy(4, 9), 5, std::nullopt); }),
              HasSubstr("lora.r: the rank is 5, but a weight [4, 9] has only 4 singular values"));
}

// In a program that has already set the weights.
TEST(PissaLayer, StartsWithTheOutputsOfItsBase) {
  nn::Linear layer(7, 5);
  layer->to(torch::kFloat64);
  const torch::Tensor weight = layer->weight.detach().clone(), input = wavy(3, 7);
  const torch::Tensor expected = layer(input).detach();
  layer->add_adapter({.rank = 2, .scale = 1.75, .pissa = true});
  materialize(*layer, 1);
  EXPECT_LE(largest_of(1.75 * torch::mm(layer->lora_b, layer->lora_a) - low_rank(weight, 2)), 1e-12);
  EXPECT_GT(largest_of(layer->weight - weight), 1e-3);
  EXPECT_LE(largest_of(layer(input) - expected), 1e-12);
  EXPECT_FALSE(layer->awaits_base());
}

Config start_config(const std::string& start, const LoraLayout& how) {
  Config config = layout_config(how.layout);
  config.model.path = kStartCase;
  config.lora = {.r = 3, .alpha = 5, .target_modules = {"all-linear"}, .init_lora_weights = start};
  if (start == "loftq") config.model.quantize = "nf4";
  train_in_layout(config, how);
  return resolve_model(std::move(config));
}

class AdapterStartGrid : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Starts, AdapterStartGrid, ::testing::Values("gaussian", "pissa", "pissa_niter_3", "loftq"),
                         [](const auto& info) { return info.param; });

TEST_P(AdapterStartGrid, EveryLayoutHasOneRanksNumbers) {
  const LoraRun one = run_from_base(start_config(GetParam(), {}));
  const std::vector<LoraLayout> few = {
      {.layout = {.tensor = 3}, .sequence_parallel = true},
      {.layout = {.pipeline = 2, .tensor = 2}, .recompute = "parts"},
      {.layout = {.data = 2, .tensor = 2}, .zero = 3},
  };
  for (const auto& how : is_long_form() ? all_lora_layouts() : few) {
    expect_same_run(one, run_from_base(start_config(GetParam(), how)), describe(how));
    if (HasFailure()) return;
  }
}

TEST(AdapterStarts, PissaTakesItsFactorsFromTheBase) {
  const TensorDict base = read_safetensors(kStartCase + "/model.safetensors");
  for (const LoraLayout& how : {LoraLayout{}, LoraLayout{.layout = {.pipeline = 2, .tensor = 3}},
                                LoraLayout{.layout = {.data = 2, .tensor = 2}, .zero = 3}}) {
    const LoraRun start = run_from_base(start_config("pissa", how), 0);
    int found = 0;
    for (const auto& [name, a] : start.weights) {
      if (!name.ends_with(std::string(".") + kAdapterA)) continue;
      ++found;
      const std::string layer = adapted_layer(name);
      const torch::Tensor part = 5.0 / 3 * torch::mm(start.weights.at(layer + ".lora_B"), a),
                          weight = base.at("model." + layer + ".weight").to(torch::kFloat64);
      EXPECT_LE(largest_of(part - low_rank(weight, 3)), 1e-10) << name;
      EXPECT_LE(largest_of(start.weights.at(layer + ".weight") + part - weight), 1e-12) << name;
    }
    EXPECT_EQ(found, 2 * 7);
  }
  EXPECT_NEAR(run_from_base(start_config("pissa", {}), 1).losses[0],
              run_from_base(start_config("default", {}), 1).losses[0], 1e-10);
}

TEST(AdapterStarts, LoftqTakesItsFactorsFromTheErrorsOfTheCodes) {
  const TensorDict base = read_safetensors(kStartCase + "/model.safetensors");
  const LoraRun start = run_from_base(start_config("loftq", {.layout = {.tensor = 2}}), 0);
  const std::string layer = "layers.1.mlp.down_proj";
  const torch::Tensor weight = base.at("model." + layer + ".weight"),
                      errors = weight - values_of(WeightCode::kNf4, quantize(WeightCode::kNf4, weight)),
                      part =
                          5.0 / 3 * torch::mm(start.weights.at(layer + ".lora_B"), start.weights.at(layer + ".lora_A"));
  EXPECT_LE(largest_of(part - low_rank(errors.to(torch::kFloat64), 3)), 1e-7);
  EXPECT_GT(largest_of(part), 1e-3);
}

TEST(AdapterStarts, GaussianNumbersHaveTheDeviationOfTheRank) {
  Config config = parts_config("mixtral", kMixtralOfFive, {"q_proj", "gate", "experts.down_proj"}, {});
  config.lora.r = 4;
  config.lora.init_lora_weights = "gaussian";
  const LoraRun start = run_lora(config, 0);
  for (const char* name :
       {"layers.0.self_attn.q_proj.lora_A", "layers.0.mlp.gate.lora_A", "layers.1.mlp.experts.down_proj_lora_A"}) {
    const double deviation = start.weights.at(name).std().item<double>();
    EXPECT_NEAR(deviation, 0.25, 0.06) << name;
    EXPECT_GT(largest_of(start.weights.at(name)), 0.45) << name;
  }
}

// A run with a changed base continues, and its files are adapters of the original base.
TEST(AdapterStarts, PissaGoesOnAndIsWrittenForTheOriginalBase) {
  for (const bool rslora : {false, true}) {
    const ScratchFolder scratch;
    Config config = start_config("pissa", {.layout = {.data = 2, .tensor = 2}, .zero = 1});
    config.lora.rslora = rslora;
    config.lora.rank_pattern = {{"layers.1.*down_proj", 2}};
    config.lora.alpha_pattern = {{"v_proj", 4}};
    const LoraRun full = run_from_base(config, 3);
    run_from_base(config, 2, {}, [&](Rig& rig) {
      save_checkpoint({.directory = scratch.path(),
                       .step = 2,
                       .config_text = config.to_yaml(),
                       .model_config = json::parse(config.model.config_json),
                       .policy = "llama"},
                      rig.plugin->state(rig.boosted), rig.plugin->mesh());
    });
    const std::string checkpoint = scratch / "step-000002";
    const auto resume = [&](Rig& rig) {
      load_checkpoint(checkpoint, rig.plugin->state(rig.boosted), rig.plugin->mesh());
    };
    EXPECT_EQ(run_from_base(config, 1, resume, {}, 2).losses[0], full.losses[2]);
    export_adapter(checkpoint, scratch / "adapter");
    const LoraConfig written = read_adapter_config(scratch / "adapter");
    EXPECT_EQ(written.r, 6);
    EXPECT_NEAR(written.alpha, rslora ? 5 * std::sqrt(2.0) : 10, 1e-12);
    EXPECT_EQ(written.rank_pattern.at("layers.1.*down_proj"), 4);
    Config exported = start_config("default", {});
    exported.lora = written;
    EXPECT_NEAR(run_from_base(exported, 1, {}, {}, 2).losses[0], full.losses[2], 1e-9);
    merge_adapter(checkpoint, "", scratch / "merged", {.type = torch::kFloat64});
    Config merged = start_config("default", {});
    merged.model.path = scratch / "merged";
    merged.lora = {};
    EXPECT_NEAR(run_from_base(merged, 1, {}, {}, 2).losses[0], full.losses[2], 1e-9);
  }
}

TEST(AdapterStartRefusals, Keys) {
  const auto parse = [](const std::string& model, const std::string& lora) {
    return thrown_by(
        [&] { Config::parse("model: {path: x" + model + "}\nlora: {target_modules: [q_proj], " + lora + "}"); });
  };
  EXPECT_EQ(parse("", "init_lora_weights: pissa"), "no error");
  EXPECT_EQ(parse("", "init_lora_weights: pissa_niter_16"), "no error");
  EXPECT_EQ(parse(", quantize: nf4", "init_lora_weights: loftq"), "no error");
  EXPECT_THAT(parse("", "init_lora_weights: olora"), HasSubstr("lora.init_lora_weights: 'olora' is not supported"));
  EXPECT_THAT(parse("", "init_lora_weights: pissa_niter_0"), HasSubstr("is not supported"));
  EXPECT_THAT(parse(", quantize: mxfp4", "init_lora_weights: loftq"), HasSubstr("but mxfp4 encodes experts only"));
  EXPECT_THAT(parse("", "init_lora_weights: loftq"), HasSubstr("but the base is not quantized"));
  EXPECT_THAT(parse(", quantize: nf4", "init_lora_weights: loftq, use_dora: true"), HasSubstr("with use_dora"));
  EXPECT_THAT(thrown_by([] {
                Config::parse(
                    "model: {policy: llama, quantize: nf4}\n"
                    "lora: {target_modules: [q_proj], init_lora_weights: loftq}");
              }),
              HasSubstr("loftq needs the weights of a base model"));
  EXPECT_THAT(parse(", quantize: int8", "init_lora_weights: pissa"),
              HasSubstr("pissa changes the weights of the base"));
  EXPECT_THAT(parse("", "path: y, init_lora_weights: gaussian"), HasSubstr("the key has no effect with lora.path"));
  const Config config = Config::parse("lora: {target_modules: [q_proj], init_lora_weights: pissa}\nmodel: {path: x}");
  EXPECT_EQ(Config::parse(config.to_yaml()).lora.init_lora_weights, "pissa");
  CheckpointInfo info;
  info.path = "run";
  info.policy = "llama";
  info.config_text = config.to_yaml();
  Config other = config;
  other.model.policy = "llama";
  other.lora.init_lora_weights = "gaussian";
  EXPECT_THAT(
      thrown_by([&] { require_same_model(info, other); }),
      HasSubstr("the checkpoint has adapters of r 8, alpha 8, pissa; expected r 8, alpha 8 and the same patterns"));
}

TEST(AdapterStartRefusals, ModelsAndFiles) {
  Config config = parts_config("mixtral", kMixtralOfFive, {"gate"}, {});
  config.lora.init_lora_weights = "pissa";
  EXPECT_THAT(
      thrown_by([&] { build_model(config); }),
      HasSubstr("lora.init_lora_weights: the value is pissa, but model.layers.0.mlp.gate is not a linear layer"));
  config = lora_config({});
  config.lora.init_lora_weights = "pissa";
  on_layout<int>(config, [&](World& world) {
    Rig rig(world, config);
    EXPECT_THAT(thrown_by([&] { load_weights(config, rig.boosted, rig.plugin->mesh()); }),
                HasSubstr("lora.init_lora_weights: layers.0.self_attn.q_proj has only initial weights"));
    return 0;
  });
  config = start_config("loftq", {});
  config.model.path = kStartCase + "/../qlora_nf4";
  config.model.config_json.clear();
  config = resolve_model(std::move(config));
  on_layout<int>(config, [&](World& world) {
    Rig rig(world, config);
    EXPECT_THAT(thrown_by([&] { load_weights(config, rig.boosted, rig.plugin->mesh()); }),
                HasSubstr("its weights are quantized, so lora.init_lora_weights: loftq cannot approximate the errors"));
    return 0;
  });
  const ScratchFolder scratch;
  const auto read = [&](const char* start) {
    scratch.write("adapter_config.json",
                  json{{"peft_type", "LORA"}, {"target_modules", {"q_proj"}}, {"init_lora_weights", start}}.dump());
    return thrown_by([&] { read_adapter_config(scratch.path()); });
  };
  EXPECT_EQ(read("gaussian"), "no error");
  EXPECT_THAT(read("pissa"),
              HasSubstr("init_lora_weights is \"pissa\", so the adapter may belong to a base that it has "
                        "changed; expected an adapter of the original base model; save it in PEFT with "
                        "path_initial_model_for_weight_conversion"));
}

}  // namespace
}  // namespace gantry::testing
