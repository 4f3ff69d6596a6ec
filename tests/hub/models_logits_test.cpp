// Small models of every family with the keys of published checkpoints, against logits of transformers.
// tests/golden/hub/README.md describes the cases.
#include <algorithm>
#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "family_case.h"
#include "gantry/checkpoint/hugging_face.h"
#include "gantry/checkpoint/safetensors.h"
#include "gantry/models/decoder_model_family.h"
#include "gantry/models/described/family_reader.h"
#include "gantry/models/described/model_sizes.h"
#include "gantry/models/model_family.h"
#include "gantry/tensors/libtorch.h"
#include "program.h"

namespace gantry::testing {
namespace {

using nlohmann::json;

const json& hub_cases() {
  static const json cases = json::parse(std::ifstream(GANTRY_SOURCE_DIR "/tests/golden/hub/cases.json"));
  return cases;
}

std::vector<std::string> hub_names() {
  std::vector<std::string> names;
  for (const auto& [name, keys] : hub_cases().items()) names.push_back(name);
  return names;
}

// The tensors of a case, "NAME/KIND/TENSOR", by their own names.
TensorDict hub_tensors(const std::string& name, const std::string& kind) {
  static const TensorDict all = read_safetensors(GANTRY_SOURCE_DIR "/tests/golden/hub/tensors.safetensors");
  const std::string prefix = name + "/" + kind + "/";
  TensorDict tensors;
  for (const auto& [stored, tensor] : all)
    if (stored.starts_with(prefix)) tensors.set(stored.substr(prefix.size()), tensor);
  return tensors;
}

class HubModels : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Cases, HubModels, ::testing::ValuesIn(hub_names()), [](const auto& info) {
  std::string name = info.param;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return name;
});

TEST_P(HubModels, HaveTheLogitsOfTransformers) {
  const ScratchFolder scratch;
  scratch.write("config.json", hub_cases()[GetParam()].dump());
  write_safetensors(scratch / "model.safetensors", hub_tensors(GetParam(), "weights"));
  write_safetensors(scratch / "inputs.safetensors", hub_tensors(GetParam(), "inputs"));
  const torch::Tensor logits = run_family(scratch.path(), {}, false).outputs.at("logits");
  const torch::Tensor expected = hub_tensors(GetParam(), "expected").at("logits");
  ASSERT_EQ(logits.sizes(), expected.sizes());
  EXPECT_LE((logits - expected).abs().max().item<double>(), 5e-5);
}

TEST_P(HubModels, HaveTheStatedNumberOfParameters) {
  const json& keys = hub_cases()[GetParam()];
  const std::string family = keys["model_type"];
  double count = 0;
  for (const auto& [name, tensor] : hub_tensors(GetParam(), "weights")) count += static_cast<double>(tensor.numel());
  EXPECT_EQ(models::model_sizes(family, keys).parameters, count);
}

// "NAME/CLASS" of every case of a head for labels, whose body is that of the case NAME.
std::vector<std::string> classifier_names() {
  std::set<std::string> names;
  for (const auto& [stored, tensor] : read_safetensors(GANTRY_SOURCE_DIR "/tests/golden/hub/classifiers.safetensors"))
    names.insert(stored.substr(0, stored.find('/', stored.find('/') + 1)));
  return {names.begin(), names.end()};
}

TEST(HubClassifiers, HaveTheLogitsOfTransformers) {
  const TensorDict all = read_safetensors(GANTRY_SOURCE_DIR "/tests/golden/hub/classifiers.safetensors");
  for (const std::string& entry : classifier_names()) {
    SCOPED_TRACE(entry);
    const std::string name = entry.substr(0, entry.find('/'));
    json keys = hub_cases()[name];
    keys["architectures"] = {entry.substr(entry.find('/') + 1)};
    keys["id2label"] = {{"0", "a"}, {"1", "b"}, {"2", "c"}};
    TensorDict weights = hub_tensors(name, "weights"), inputs;
    weights.set("score.weight", all.at(entry + "/weights/score.weight"));
    for (const char* input : {"input_ids", "attention_mask", "labels"})
      inputs.set(input, all.at(entry + "/inputs/" + input));
    const ScratchFolder scratch;
    scratch.write("config.json", keys.dump());
    write_safetensors(scratch / "model.safetensors", weights);
    write_safetensors(scratch / "inputs.safetensors", inputs);
    const torch::Tensor expected = all.at(entry + "/expected/logits");
    for (const Layout& layout : {Layout{}, Layout{.pipeline = 2, .tensor = 2}}) {
      const torch::Tensor logits = run_family(scratch.path(), layout, layout.tensor > 1).outputs.at("logits");
      ASSERT_EQ(logits.sizes(), expected.sizes());
      EXPECT_LE((logits - expected).abs().max().item<double>(), 5e-5) << layout.tensor;
    }
  }
}

// The names and keys that are exported are those that were read.
TEST(HubClassifiers, KeepTheirClassAndLabels) {
  json keys = hub_cases()["Mistral-7B-v0.1"];
  keys["architectures"] = {"MistralForSequenceClassification"};
  keys["num_labels"] = 3;
  const auto& family = models::families().at("mistral");
  const json exported = family.hugging_face_config(keys);
  EXPECT_EQ(exported["architectures"], json({"MistralForSequenceClassification"}));
  EXPECT_EQ(exported["id2label"].size(), 3u);
  EXPECT_EQ(family.task(keys), "classes");
  EXPECT_EQ(family.config_fingerprint(keys)["num_labels"], 3);
  EXPECT_FALSE(family.is_ignored_tensor(keys, "score.weight"));
  EXPECT_TRUE(family.is_ignored_tensor(keys, "lm_head.weight"));
}

// The key may be missing, where the family has a default, or count from the end of the vocabulary.
TEST(HubClassifiers, StateThePaddingTokenThatTheyUse) {
  const auto padding = [](const std::string& family, json keys) {
    keys["architectures"] = {"AnyForSequenceClassification"};
    return models::families().at(family).hugging_face_config(keys)["pad_token_id"];
  };
  EXPECT_EQ(padding("phi3", json::object()), 32000);
  EXPECT_EQ(padding("llama", {{"vocab_size", 50}, {"pad_token_id", -1}}), 49);
  EXPECT_EQ(padding("llama", json::object()), json());
}

// Another head of the same body: the output layer is new, and the files' own head is ignored.
TEST(HubHeads, OfOtherKindsLeaveTheBody) {
  const std::string name = "Mistral-7B-v0.1";
  json keys = hub_cases()[name];
  keys["architectures"] = {"MistralForTokenClassification"};
  const ScratchFolder scratch;
  TensorDict body{{"score.weight", torch::ones({2, 16})}};
  for (const auto& [stored, tensor] : hub_tensors(name, "weights"))
    if (stored != "lm_head.weight") body.set(stored, tensor);
  write_safetensors(scratch / "model.safetensors", body);
  const auto& family = models::families().at("mistral");
  const auto model = family.build(keys);
  EXPECT_EQ(load_hugging_face(scratch.path(), family, keys, full_parameters(*model), {}).fresh,
            std::vector<std::string>{"lm_head.weight"});
}

TEST(HubPositions, HaveNoLimitWithAlibiAndDynamicScaling) {
  const auto positions = [](const std::string& family, const json& keys) {
    return models::families().at(family).context_length(keys);
  };
  EXPECT_EQ(positions("llama", {{"max_position_embeddings", 64}}), 64);
  const std::int64_t many = std::int64_t{1} << 30;
  EXPECT_GT(positions("bloom", {{"seq_length", 64}}), many);
  EXPECT_GT(positions("falcon", {{"alibi", true}, {"max_position_embeddings", 64}}), many);
  EXPECT_GT(positions("llama", {{"rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}}}}), many);
}

// The cases of tests/golden/families with the keys of published files, by folder. models/families_test.cpp compares
// their logits.
std::map<std::string, json> published_families() {
  std::map<std::string, json> published;
  for (const std::string& folder : family_cases(GANTRY_SOURCE_DIR "/tests/golden/families"))
    if (std::ifstream file(folder + "/config_hub.json"); file) published[folder] = json::parse(file);
  return published;
}

// Tensors of images and sounds, and keys and values of layers that use those of others.
bool is_not_loaded(const json& keys, const std::string& tensor) {
  if (models::is_unused_key(keys["model_type"], keys, tensor)) return true;
  const bool is_of_sounds =
      tensor.find("audio_tower.") != std::string::npos || tensor.find("embed_audio.") != std::string::npos;
  return is_of_sounds || tensor.find("embed_vision.") != std::string::npos ||
         tensor.find("vision_tower.") != std::string::npos || tensor.find("visual.") != std::string::npos ||
         tensor.find("multi_modal_projector.") != std::string::npos;
}

TEST(HubFamilies, HaveTheStatedNumberOfParameters) {
  for (const auto& [folder, keys] : published_families()) {
    double count = 0;
    for (const auto& [name, tensor] : read_safetensors(folder + "/model.safetensors"))
      if (!is_not_loaded(keys, name)) count += static_cast<double>(tensor.numel());
    EXPECT_EQ(models::model_sizes(keys["model_type"], keys).parameters, count) << folder;
  }
}

TEST(HubCases, EveryFamilyHasOne) {
  std::set<std::string> families;
  for (const auto& [name, keys] : hub_cases().items()) families.insert(keys["model_type"].get<std::string>());
  for (const auto& [folder, keys] : published_families()) families.insert(keys["model_type"].get<std::string>());
  for (const auto& family : models::family_readers()) EXPECT_TRUE(families.contains(family.model_type));
}

}  // namespace
}  // namespace gantry::testing
