// Small models of every family with the keys of published checkpoints, against logits of transformers.
// tests/golden/hub/README.md describes the cases.
#include <algorithm>
#include <fstream>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <set>

#include "family_case.h"
#include "gantry/checkpoint/safetensors.h"
#include "gantry/models/described/family_reader.h"
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

TEST(HubCases, EveryFamilyHasOne) {
  std::set<std::string> families;
  for (const auto& [name, keys] : hub_cases().items()) families.insert(keys["model_type"].get<std::string>());
  for (const auto& family : models::family_readers()) EXPECT_TRUE(families.contains(family.model_type));
}

}  // namespace
}  // namespace gantry::testing
