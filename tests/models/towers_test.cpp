// Text decoders of models that also read images: their keys, names, entries, and the tensors that are not loaded.
#include <filesystem>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "family_case.h"
#include "gantry/booster/convert_checkpoint.h"
#include "gantry/booster/recipe.h"
#include "gantry/checkpoint/format/model_files.h"
#include "gantry/checkpoint/hugging_face.h"
#include "gantry/checkpoint/safetensors.h"
#include "gantry/models/decoder.h"
#include "gantry/models/described/decoder_family.h"
#include "gantry/models/described/shared_keys.h"
#include "gantry/models/model_family.h"
#include "gantry/tensors/libtorch.h"
#include "generation_case.h"
#include "program.h"
#include "thrown_by.h"

namespace gantry::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;

const std::string kTowerCases = GANTRY_SOURCE_DIR "/tests/golden/families/";

json tower_keys(const std::string& name, const std::string& file = "config.json") {
  return json::parse(read_file(kTowerCases + name + "/" + file));
}

std::string tower_refusal(const json& keys) {
  return thrown_by([&] { models::decoder_spec(keys["model_type"].get<std::string>(), keys); });
}

std::string renamed_start(const std::string& name, const std::string& from, const std::string& to) {
  return name.starts_with(from) ? to + name.substr(from.size()) : name;
}

// The names that transformers 5 has in memory, which some files have.
std::string name_in_memory(std::string name) {
  name = renamed_start(name, "language_model.lm_head.", "lm_head.");
  for (const char* part : {"vision_tower.", "multi_modal_projector.", "visual."})
    name = renamed_start(name, part, std::string("model.") + part);
  return renamed_start(name, "language_model.model.", "model.language_model.");
}

TEST(Towers, HaveTheNamesOfBothVersionsOfTransformers) {
  for (const char* name : {"mistral3", "llava_text", "gemma3_mm", "qwen2_vl", "qwen3_vl", "glm4v"}) {
    const ScratchFolder scratch;
    TensorDict renamed;
    for (const auto& [stored, tensor] : read_safetensors(kTowerCases + name + "/model.safetensors"))
      renamed.set(
          name_in_memory(std::string(name) == "qwen2_vl" ? renamed_start(stored, "model.", "model.language_model.")
                                                         : stored),
          tensor);
    write_safetensors(scratch / "model.safetensors", renamed);
    for (const char* file : {"config.json", "inputs.safetensors", "expected.safetensors"})
      fs::copy_file(kTowerCases + name + "/" + file, scratch / file);
    expect_family(scratch.path(), run_family(scratch.path(), {}, false), name);
  }
}

TEST(Towers, ReadTheSameFromFlatAndNestedKeys) {
  for (const char* name : {"qwen2_vl", "qwen2_5_vl"}) {
    const json nested = tower_keys(name);
    json flat = nested;
    flat.erase("text_config");
    for (const auto& [key, value] : nested["text_config"].items())
      if (!flat.contains(key)) flat[key] = value;
    const auto& family = models::families().at(nested["model_type"].get<std::string>());
    EXPECT_EQ(models::config_fingerprint(family, nested), models::config_fingerprint(family, flat)) << name;
    json both = flat;
    both["text_config"] = nested["text_config"];
    EXPECT_EQ(models::config_fingerprint(family, nested), models::config_fingerprint(family, both)) << name;
    EXPECT_EQ(family.check(both).unknown, std::vector<std::string>());
  }
  for (const char* name : {"qwen3_vl", "mistral3", "llava_text", "llama4_mm"}) {
    const json keys = tower_keys(name), published = tower_keys(name, "config_hub.json");
    const auto& family = models::families().at(keys["model_type"].get<std::string>());
    EXPECT_EQ(models::config_fingerprint(family, keys), models::config_fingerprint(family, published)) << name;
    EXPECT_EQ(family.check(published).unknown, std::vector<std::string>());
  }
}

TEST(Towers, ReadTheModelsThatTheirKeysDescribe) {
  const json of_qwen2 = {{"model_type", "llava"}, {"text_config", {{"model_type", "qwen2"}}}};
  EXPECT_TRUE(models::decoder_spec("llava", of_qwen2).layers.front().attention.bias);
  json unknown = tower_keys("llava_text");
  unknown["text_config"]["model_type"] = "opt";
  EXPECT_THAT(tower_refusal(unknown), HasSubstr("model_type: the value is \"opt\"; expected one of llama, mistral"));
  json contradictory = tower_keys("mistral3");
  contradictory["num_hidden_layers"] = 2;
  EXPECT_THAT(tower_refusal(contradictory), HasSubstr("text_config.num_hidden_layers, which is 3"));
  json labelled = tower_keys("gemma3_mm");
  labelled["architectures"] = {"Gemma3ForSequenceClassification"};
  EXPECT_THAT(tower_refusal(labelled), HasSubstr("architectures"));
  json sections = tower_keys("qwen2_vl");
  sections["text_config"]["rope_parameters"]["mrope_section"] = {2, 1, 2};
  EXPECT_THAT(tower_refusal(sections), HasSubstr("numbers with the sum 4"));
  sections["text_config"]["rope_parameters"]["mrope_section"] = {2, 2};
  EXPECT_THAT(tower_refusal(sections), HasSubstr("three numbers"));
  json heads = tower_keys("qwen2_vl");
  heads["text_config"]["rope_parameters"].erase("mrope_section");
  heads["text_config"]["head_dim"] = 6;
  EXPECT_THAT(tower_refusal(heads), HasSubstr("head_dim: the value is 6"));
}

// vision_feature_layer counts the states of the tower, of which number 0 precedes its layers.
TEST(Towers, FeaturesAreThoseOfALayer) {
  for (const char* config : {"../images/chats/llava/config.json", "mistral3_image/config.json"}) {
    json keys = json::parse(read_file(kTowerCases + config));
    keys["image_encoder"] = true;
    const auto layers = keys["vision_config"]["num_hidden_layers"].get<std::int64_t>();
    for (const std::int64_t layer : {std::int64_t{0}, -(layers + 1)}) {
      keys["vision_feature_layer"] = layer;
      EXPECT_THAT(tower_refusal(keys), HasSubstr(fmt::format("vision_feature_layer: the value is {}; expected a layer "
                                                             "of the encoder, and not the state before the first one",
                                                             layer)));
    }
    keys["vision_feature_layer"] = layers + 1;
    EXPECT_THAT(tower_refusal(keys), HasSubstr(fmt::format("at most num_hidden_layers {}", layers)));
    for (const std::int64_t layer : {std::int64_t{1}, layers, std::int64_t{-1}, -layers}) {
      keys["vision_feature_layer"] = layer;
      EXPECT_EQ(tower_refusal(keys), "no error") << config << " " << layer;
    }
  }
}

TEST(Towers, KeysOfARunChangeSingleKeysOfTheText) {
  Config config;
  config.model.path = kTowerCases + "mistral3";
  config.model.config_json = R"({"text_config": {"attention_dropout": 0.25}})";
  const json keys = json::parse(resolve_model(std::move(config)).model.config_json);
  EXPECT_EQ(keys["text_config"]["attention_dropout"], 0.25);
  EXPECT_EQ(keys["text_config"]["hidden_size"], 24);
}

TEST(Towers, RefuseEntriesThatTheyDoNotRead) {
  const json keys = tower_keys("mistral3");
  const auto model = std::dynamic_pointer_cast<models::DecoderImpl>(models::families().at("mistral3").build(keys));
  const torch::Tensor ids = torch::zeros({2, 5}, torch::kInt64);
  EXPECT_THAT(thrown_by([&] {
                model->forward({{"input_ids", ids}, {"pixel_values", torch::zeros({2, 3, 4, 4})}});
              }),
              HasSubstr("pixel_values: the model mistral3 reads text only"));
  EXPECT_THAT(thrown_by([&] {
                model->forward({{"input_ids", ids}, {"position_ids", ids.repeat({3, 1, 1})}});
              }),
              HasSubstr("position_ids: the positions have three rows"));
}

// Three equal rows are one row.
TEST(Towers, EqualRowsOfPositionsAreOneRow) {
  for (const char* name : {"qwen2_vl", "qwen3_vl", "glm4v"}) {
    const json keys = tower_keys(name);
    const auto model = std::dynamic_pointer_cast<models::DecoderImpl>(
        models::families().at(keys["model_type"].get<std::string>()).build(keys));
    model->eval();
    const torch::Tensor ids = torch::arange(10).view({2, 5}), positions = torch::arange(5).repeat({2, 1}) + 3;
    const auto logits = [&](const torch::Tensor& of) {
      return model->forward({{"input_ids", ids}, {"position_ids", of}}).at("logits");
    };
    EXPECT_TRUE(torch::equal(logits(positions), logits(positions.repeat({3, 1, 1})))) << name;
  }
}

TEST(Towers, ExportsKeepTensorsThatAreNotLoaded) {
  const std::string folder = kTowerCases + "qwen3_vl";
  const ScratchFolder scratch;
  const Config config = import_config(folder, {});
  std::string checkpoint;
  EXPECT_EQ(start_ranks()(config,
                          [&](World& world) { checkpoint = import_model(world, config, scratch / "run").checkpoint; }),
            0);
  export_checkpoint(checkpoint, scratch / "out", {.type = torch::kBFloat16});
  const TensorDict original = read_safetensors(folder + "/model.safetensors"),
                   exported = read_safetensors(scratch / "out/model.safetensors");
  EXPECT_EQ(exported.size(), original.size());
  for (const auto& [name, tensor] : original) {
    const bool is_loaded = name.find("visual") == std::string::npos;
    const torch::Tensor expected = is_loaded ? tensor.to(torch::kBFloat16) : tensor;
    EXPECT_TRUE(exported.at(name).dtype() == expected.dtype() && torch::equal(exported.at(name), expected)) << name;
  }
  const json keys = json::parse(read_file(scratch / "out/config.json")), before = tower_keys("qwen3_vl");
  EXPECT_EQ(keys["vision_config"], before["vision_config"]);
  EXPECT_EQ(keys["text_config"]["rope_parameters"], before["text_config"]["rope_parameters"]);
  EXPECT_EQ(keys["text_config"]["rope_scaling"]["mrope_section"], json({2, 1, 1}));  // as older versions read it
  EXPECT_EQ(keys["architectures"], before["architectures"]);
}

TEST(Towers, StateTheirDtypeInTheKeysOfTheText) {
  json keys = tower_keys("qwen3_vl", "config_hub.json");
  keys.erase("torch_dtype");
  keys["text_config"]["dtype"] = "bfloat16";
  EXPECT_EQ(models::stated_dtype(keys), "bfloat16");
  set_weight_type(keys, "float16");
  EXPECT_EQ(keys["text_config"]["dtype"], "float16");
}

}  // namespace
}  // namespace gantry::testing
