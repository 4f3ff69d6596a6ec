// Adapters compared with PEFT: logits, loss, gradients, greedy tokens and merged weights of its reference
// cases, and round trips of its files.
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mutex>
#include <nlohmann/json.hpp>

#include "family_case.h"
#include "gantry/checkpoint/adapter.h"
#include "gantry/checkpoint/adapter_config.h"
#include "gantry/checkpoint/checkpoint.h"
#include "gantry/checkpoint/safetensors.h"
#include "gantry/core/sharding/adapter_split.h"
#include "gantry/models/adapter_modules.h"
#include "gantry/models/peft_names.h"
#include "gantry/tensors/libtorch.h"
#include "lora_rig.h"
#include "program.h"
#include "thrown_by.h"

namespace gantry::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

const std::string kCases = GANTRY_SOURCE_DIR "/tests/golden/lora";

class LoraCases : public ::testing::TestWithParam<std::string> {
 protected:
  std::string folder() const { return kCases + "/" + GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Cases, LoraCases, ::testing::Values("qv", "all", "dora"),
                         [](const auto& info) { return info.param; });

Config case_config(const std::string& folder, const LoraLayout& how) {
  Config config = layout_config(how.layout);
  config.model.path = folder;
  config.lora.path = folder + "/adapter";
  config.parallel.sequence_parallel = how.sequence_parallel;
  config.parallel.zero = how.zero;
  return resolve_model(std::move(config));
}

// Shifts the labels of the files by one token.
TensorDict case_batch(const std::string& folder) {
  TensorDict batch;
  for (const auto& [name, tensor] : read_safetensors(folder + "/inputs.safetensors"))
    batch.set(name, tensor.to(torch::kInt64));
  const torch::Tensor labels = batch.at("labels");
  torch::Tensor next = torch::full_like(labels, -100);
  next.narrow(1, 0, labels.size(1) - 1).copy_(labels.narrow(1, 1, labels.size(1) - 1));
  batch.set("labels", next);
  return batch;
}

FamilyOutcome run_case(const std::string& folder, const LoraLayout& how) {
  const Config config = case_config(folder, how);
  const TensorDict batch = case_batch(folder);
  std::mutex lock;
  FamilyOutcome outcome;  // guarded by the lock
  const int code = start_ranks()(config, [&](World& world) {
    Rig rig(world, config);
    load_weights(config, rig.boosted, rig.plugin->mesh());
    const auto result =
        rig.booster.execute_pipeline(make_batch(batch), rig.boosted, {.return_outputs = true, .broadcast_loss = true});
    rig.boosted.optimizer->gradients().complete();
    const TensorDict gradients = rig.gradients();
    const std::lock_guard guard(lock);
    if (rig.plugin->stages().holds_last() && rig.plugin->mesh().coordinate("tp") == 0)
      for (const auto& [name, tensor] : result.outputs) outcome.outputs.set(name, tensor.cpu());
    if (!world.is_main()) return;
    outcome.loss = outcome.ce_loss = *result.loss;
    std::vector<std::string> names;
    for (const auto& [name, gradient] : gradients) names.push_back(name);
    const auto family = models::families().at("llama").tensor_names(json::parse(config.model.config_json));
    outcome.gradients = to_hugging_face(models::trained_names(names, config.lora, family), gradients);
  });
  EXPECT_EQ(code, 0);
  return outcome;
}

TEST_P(LoraCases, LogitsLossAndGradientsInManyLayouts) {
  for (const LoraLayout& how : {LoraLayout{}, LoraLayout{.layout = {.tensor = 2}, .sequence_parallel = true},
                                LoraLayout{.layout = {.pipeline = 2, .tensor = 3}}}) {
    expect_family(folder(), run_case(folder(), how), describe(how));
    if (HasFailure()) return;
  }
}

void expect_close_files(const std::string& a, const std::string& b, double tolerance) {
  const TensorDict one = read_safetensors(a), other = read_safetensors(b);
  ASSERT_EQ(one.size(), other.size());
  for (const auto& [name, tensor] : one)
    EXPECT_LE((tensor - other.at(name)).abs().max().item<double>(), tolerance) << name;
}

TEST_P(LoraCases, MergedWeightsArePeftsAndTheirLogitsTheUnmergedOnes) {
  const ScratchFolder scratch;
  merge_adapter(folder() + "/adapter", folder(), scratch / "merged");
  expect_close_files(scratch / "merged/model.safetensors", folder() + "/merged.safetensors", 2e-7);
  const FamilyOutcome unmerged = run_case(folder(), {});
  std::filesystem::copy_file(folder() + "/inputs.safetensors", scratch / "merged/inputs.safetensors");
  const FamilyOutcome merged = run_family(scratch / "merged", {}, false);
  EXPECT_LE((merged.outputs.at("logits") - unmerged.outputs.at("logits")).abs().max().item<double>(), 5e-5);
}

// A checkpoint of an adapter that was only read, as PEFT had written it.
TEST_P(LoraCases, FilesThereAndBackAreTheSame) {
  const ScratchFolder scratch;
  for (const LoraLayout& how : {LoraLayout{}, LoraLayout{.layout = {.pipeline = 2, .tensor = 3}},
                                LoraLayout{.layout = {.data = 3}, .zero = 3}}) {
    const Config config = case_config(folder(), how);
    EXPECT_EQ(start_ranks()(config,
                            [&](World& world) {
                              Rig rig(world, config);
                              load_weights(config, rig.boosted, rig.plugin->mesh());
                              save_checkpoint({.directory = scratch / describe(how),
                                               .step = 1,
                                               .config_text = config.to_yaml(),
                                               .model_config = json::parse(config.model.config_json),
                                               .policy = "llama"},
                                              rig.plugin->state(rig.boosted), rig.plugin->mesh());
                            }),
              0);
    const std::string checkpoint = scratch / describe(how) + "/step-000001", out = scratch / "out" + describe(how);
    ASSERT_TRUE(holds_adapters(checkpoint));
    for (const auto& [name, tensor] : read_checkpoint_tensors(checkpoint, "model"))
      EXPECT_TRUE(is_adapter(name)) << name;
    export_adapter(checkpoint, out);
    EXPECT_TRUE(read_file(out + "/adapter_model.safetensors") ==
                read_file(folder() + "/adapter/adapter_model.safetensors"));
    const json written = json::parse(read_file(out + "/adapter_config.json")),
               theirs = json::parse(read_file(folder() + "/adapter/adapter_config.json"));
    for (const auto& [key, value] : written.items())
      if (key != "base_model_name_or_path") EXPECT_EQ(value, theirs[key]) << key;
    merge_adapter(checkpoint, "", out + "/merged");
    expect_close_files(out + "/merged/model.safetensors", folder() + "/merged.safetensors", 2e-7);
  }
}

// --- Rejected configurations ---

std::string refusal_of(const LoraConfig& lora) {
  Config config = lora_config({});
  config.lora = lora;
  return thrown_by([&] { build_model(config); });
}

TEST(LoraRefusals, NamesThatMatchNothing) {
  EXPECT_THAT(
      refusal_of({.r = 2, .alpha = 3, .target_modules = {"q_prok"}}),
      HasSubstr("lora.target_modules: 'q_prok' matches no module of the model; expected a linear layer; did you "
                "mean 'q_proj'?"));
  EXPECT_THAT(refusal_of({.r = 2, .alpha = 3, .target_modules = {"query_key_value"}}), HasSubstr("choose one of"));
  EXPECT_THAT(refusal_of({.r = 2, .alpha = 3, .target_modules = {"norm"}}),
              HasSubstr("'norm' matches model.norm, which is not a gantry::nn::Linear"));
  EXPECT_THAT(refusal_of({.r = 2, .alpha = 3, .target_modules = {"q_proj"}, .modules_to_save = {"lm_haed"}}),
              HasSubstr("did you mean 'lm_head'?"));
  EXPECT_THAT(refusal_of({.r = 2, .alpha = 3, .target_modules = {"q_proj"}, .modules_to_save = {"q_proj"}}),
              HasSubstr("is also in lora.modules_to_save"));
  EXPECT_THAT(
      refusal_of({.r = 2, .alpha = 3, .target_modules = {"q_proj"}, .rank_pattern = {{"q_proj", 3}, {".*", 2}}}),
      HasSubstr("both match"));
  EXPECT_THAT(refusal_of({.r = 2, .alpha = 3, .target_modules = {"q_proj"}, .alpha_pattern = {{"(", 3}}}),
              HasSubstr("is not a regular expression"));
}

TEST(LoraRefusals, ATiedHead) {
  Config config = lora_config({});
  config.model.config_json.insert(1, R"("tie_word_embeddings": true, )");
  config.lora.target_modules = {"lm_head"};
  EXPECT_THAT(thrown_by([&] { build_model(config); }), HasSubstr("is the same parameter as embed_tokens.weight"));
}

TEST(LoraRefusals, AnAdapterOfAnotherBase) {
  const auto load = [](Config config) {
    std::string message;
    std::mutex lock;
    start_ranks()(config, [&](World& world) {
      Rig rig(world, config);
      const std::string found = thrown_by([&] { load_weights(config, rig.boosted, rig.plugin->mesh()); });
      const std::lock_guard guard(lock);
      message = found;
    });
    return message;
  };
  Config config = case_config(kCases + "/all", {});
  config.lora.path = kCases + "/qv/adapter";
  EXPECT_THAT(load(config), HasSubstr("the adapter belongs to another base model: missing"));
  config = case_config(kCases + "/all", {});
  config.lora = resolve_lora({.path = kCases + "/qv/adapter"});
  EXPECT_THAT(load(config), HasSubstr("has the shape"));
  const ScratchFolder scratch;
  EXPECT_THAT(thrown_by([&] { merge_adapter(kCases + "/all/adapter", kCases + "/qv", scratch / "out"); }),
              HasSubstr("another base model"));
  EXPECT_THAT(thrown_by([&] { merge_adapter(kCases + "/all/adapter", "", scratch / "out"); }),
              HasSubstr("does not state its base model"));
}

TEST(LoraRefusals, KindsOfAdaptersThatAreNotThere) {
  const ScratchFolder scratch;
  const auto read = [&](const json& keys) {
    scratch.write("adapter_config.json", keys.dump());
    return thrown_by([&] { read_adapter_config(scratch.path()); });
  };
  const json plain = {
      {"peft_type", "LORA"}, {"r", 4}, {"lora_alpha", 8}, {"target_modules", {"q_proj"}}, {"new_key", 1}};
  const auto with = [&](const char* key, const json& value) {
    json keys = plain;
    keys[key] = value;
    return keys;
  };
  EXPECT_EQ(read(plain), "no error");
  EXPECT_THAT(read(with("lora_bias", true)), HasSubstr("lora_bias is true, which this version does not support"));
  EXPECT_EQ(read(with("use_dora", true)), "no error");
  EXPECT_THAT(read(with("use_dora", 3)), HasSubstr("use_dora is 3; expected true or false"));
  EXPECT_EQ(read(with("target_parameters", {"mlp.experts.gate_up_proj"})), "no error");
  EXPECT_THAT(read(with("target_parameters", 3)), HasSubstr("target_parameters is 3"));
  EXPECT_THAT(read(with("bias", "all")), HasSubstr("bias is \"all\"; expected none"));
  EXPECT_THAT(read(with("peft_type", "IA3")), HasSubstr("LORA"));
  EXPECT_THAT(read(with("target_modules", ".*_proj")), HasSubstr("this version does not support expressions"));
  EXPECT_THAT(read(with("r", 0)), HasSubstr("a whole number from 1"));
  EXPECT_THAT(thrown_by([&] { resolve_lora({.r = 2, .path = kCases + "/qv/adapter"}); }),
              HasSubstr("lora.r: the value differs from the one in"));
}

TEST(LoraKeys, AreReadWrittenAndRefused) {
  const auto parse = [](const std::string& lora) { return Config::parse("model: {policy: llama}\nlora: " + lora); };
  const Config config =
      parse("{r: 4, target_modules: [q_proj, v_proj], rank_pattern: {k_proj: 2}, rslora: true, use_dora: true}");
  EXPECT_EQ(config.lora.alpha, 8);
  const Config again = Config::parse(config.to_yaml());
  EXPECT_EQ(again.lora.rank_pattern, config.lora.rank_pattern);
  EXPECT_EQ(again.lora.target_modules, config.lora.target_modules);
  EXPECT_TRUE(again.lora.rslora);
  EXPECT_TRUE(again.lora.use_dora);
  EXPECT_EQ(Config::parse(parse("{target_modules: all-linear}").to_yaml()).lora.target_modules.at(0), "all-linear");
  EXPECT_THAT(thrown_by([&] { parse("{r: 4}"); }), HasSubstr("lora.target_modules: the list is missing"));
  EXPECT_THAT(thrown_by([&] { parse("{target_modules: [q_proj], ranks: 4}"); }), HasSubstr("lora.ranks"));
  EXPECT_THAT(thrown_by([&] { parse("{target_modules: all_linear}"); }), HasSubstr("all-linear"));
  EXPECT_THAT(thrown_by([&] { parse("{target_modules: [q_proj], rank_pattern: {a: 1.5}}"); }),
              HasSubstr("a whole number from 1"));
  EXPECT_THAT(thrown_by([&] { parse("{target_modules: [q_proj]}\ntrain: {freeze: [\"embed*\"]}"); }),
              HasSubstr("train.freeze"));
}

// --- Frozen parameters by pattern ---

TEST(FreezeKeys, PatternsFreeze) {
  Config config = lora_config({.layout = {.pipeline = 2, .tensor = 2}});
  config.lora = {};
  config.train.freeze = {"embed*", "layers.0.*"};
  const LoraRun run = run_lora(config, 2, [](Rig& rig) {
    for (const auto& held : rig.boosted.model->stage_module().parameters)
      EXPECT_EQ(held.tensor.requires_grad(),
                !held.placement.name.starts_with("embed") && !held.placement.name.starts_with("layers.0."));
  });
  config.parallel.pipeline = config.parallel.tensor = 1;
  expect_same_run(run_lora(config, 2), run, "frozen");
  config.train.freeze = {"embd*"};
  EXPECT_THAT(thrown_by([&] { build_model(config); }), HasSubstr("train.freeze: 'embd*' matches no parameter"));
  config.train.freeze = {"*"};
  EXPECT_THAT(thrown_by([&] { build_model(config); }), HasSubstr("the patterns freeze every parameter"));
}

// PEFT's names are those of transformers' modules.
TEST(AdapterModules, OfTextDecodersInLargerModels) {
  const auto& llava = models::families().at("llava");
  const auto& qwen = models::families().at("qwen2_vl");
  const std::string prefix = models::kPeftPrefix;
  EXPECT_EQ(models::to_module_name(llava, prefix + "language_model.model.layers.0.mlp"),
            prefix + "model.language_model.layers.0.mlp");
  EXPECT_EQ(models::to_module_name(llava, "language_model.lm_head"), "lm_head");
  EXPECT_EQ(models::to_module_name(qwen, "model.norm"), "model.language_model.norm");
  EXPECT_EQ(models::from_module_name(qwen, prefix + "model.language_model.norm"), prefix + "model.norm");
  EXPECT_EQ(models::to_module_name(models::families().at("llama"), "model.norm"), "model.norm");
  const auto& with_images = models::families().at("qwen2_5_vl");
  EXPECT_EQ(models::to_module_name(llava, prefix + "multi_modal_projector.linear_1"),
            prefix + "model.multi_modal_projector.linear_1");
  EXPECT_EQ(models::to_module_name(with_images, "visual.merger.mlp.0"), "model.visual.merger.mlp.0");
  EXPECT_EQ(models::from_module_name(with_images, "model.visual.merger.mlp.0"), "visual.merger.mlp.0");
  const auto entries = [](const models::ModelFamily& family, const std::vector<std::string>& stated) {
    return models::from_module_names(family, {.target_modules = stated}).target_modules;
  };
  const std::vector<std::string> stated = {"q_proj", "language_model.layers.0.mlp", "model.language_model.norm"};
  EXPECT_EQ(entries(llava, stated),
            (std::vector<std::string>{"q_proj", "language_model.model.layers.0.mlp", "language_model.model.norm"}));
  EXPECT_EQ(entries(qwen, stated), (std::vector<std::string>{"q_proj", "model.layers.0.mlp", "model.norm"}));
  EXPECT_EQ(entries(llava, {"language_model.model.norm"}), (std::vector<std::string>{"language_model.model.norm"}));
  EXPECT_EQ(entries(with_images, {"model.visual", "visual.merger", "model.norm", "merger.mlp.0"}),
            (std::vector<std::string>{"visual", "visual.merger", "model.norm", "merger.mlp.0"}));
}

TEST(AdapterModules, OfAnImageEncoderAreRefused) {
  EXPECT_THAT(thrown_by([] {
                check_adapter_names({"base_model.model.model.vision_tower.layers.0.q_proj.lora_A.weight"}, {},
                                    "adapter", models::families().at("llava").other_parts);
              }),
              HasSubstr("Gantry adapts only the text decoder; expected no adapters of vision_tower, "
                        "multi_modal_projector; train an adapter whose target_modules are within the text decoder"));
}

}  // namespace
}  // namespace gantry::testing
