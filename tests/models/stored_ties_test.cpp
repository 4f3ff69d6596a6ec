// Files that store tied tensors with different values: each value is used, as in transformers.
#include <filesystem>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "family_case.h"
#include "gantry/booster/recipe.h"
#include "gantry/checkpoint/safetensors.h"
#include "gantry/models/model_family.h"
#include "gantry/tensors/libtorch.h"
#include "program.h"

namespace gantry::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;

const std::string kTiedCases = GANTRY_SOURCE_DIR "/tests/golden/families/";

torch::Tensor rows_reversed(const torch::Tensor& tensor, double factor) {
  return (tensor.flip(0) * factor).contiguous();
}

// T5's tables. A factor of 0 copies the shared table unchanged.
auto tables(std::map<std::string, double> factors) {
  return [factors = std::move(factors)](TensorDict& tensors) {
    const torch::Tensor table = tensors.take("shared.weight");
    for (const auto& [name, factor] : factors) {
      const std::string stored = name == "shared" || name == "lm_head" ? name : name + ".embed_tokens";
      tensors.set(stored + ".weight", factor == 0 ? table.clone() : rows_reversed(table, factor));
    }
  };
}

using Change = std::function<void(TensorDict&)>;

// The changes that tests/golden/weights/make_goldens.py makes.
Change change_of(const std::string& name) {
  static const std::map<std::string, Change> changes = {
      {"t5/shared", tables({{"shared", 0}})},
      {"t5/no_shared", tables({{"encoder", 0}, {"decoder", 0}, {"lm_head", 0}})},
      {"t5/decoder_alone", tables({{"decoder", 0}})},
      {"t5/head_alone", tables({{"lm_head", 0}})},
      {"t5/other_decoder", tables({{"shared", 0}, {"decoder", 0.5}})},
      {"t5/other_encoder", tables({{"shared", 0}, {"encoder", 0.5}})},
      {"t5/encoder_and_other_decoder", tables({{"encoder", 0}, {"decoder", 0.5}})},
      {"t5/four", tables({{"shared", 0}, {"encoder", 0.5}, {"decoder", 0.25}, {"lm_head", 2}})},
      {"t5/three", tables({{"encoder", 0.5}, {"decoder", 0.25}, {"lm_head", 2}})},
      {"t5/other_head", tables({{"shared", 0}, {"lm_head", 2}})},
      {"t5/flan", tables({{"shared", 0}, {"lm_head", 2}})},
      {"t5/untied_without_head", tables({{"shared", 0}})},
      {"t5/untied_with_equal_head", tables({{"shared", 0}, {"lm_head", 0}})},
      {"bert/bias",
       [](TensorDict& tensors) {
         tensors.set("cls.predictions.decoder.bias", rows_reversed(tensors.at("cls.predictions.bias"), 2) + 1);
       }},
      {"roberta/bias", [](TensorDict& tensors) {
         tensors.set("lm_head.decoder.bias", rows_reversed(tensors.at("lm_head.bias"), 2) + 1);
       }}};
  if (const auto found = changes.find(name); found != changes.end()) return found->second;
  return [name](TensorDict& tensors) {  // other_head
    const std::string head = name.starts_with("roberta")   ? "lm_head.decoder.weight"
                             : name.starts_with("bert")    ? "cls.predictions.decoder.weight"
                             : name.starts_with("whisper") ? "proj_out.weight"
                                                           : "lm_head.weight";
    for (const auto& [stored, tensor] : TensorDict(tensors))
      if (stored.ends_with("word_embeddings.weight") || stored.ends_with("embed_tokens.weight") ||
          stored.ends_with("wte.weight"))
        tensors.set(head, rows_reversed(tensor, 0.5));
  };
}

json keys_of(const std::string& name) {
  if (name == "t5/flan") return {{"tie_word_embeddings", true}, {"scale_decoder_outputs", false}};
  if (name.starts_with("t5/untied")) return {{"tie_word_embeddings", false}, {"scale_decoder_outputs", false}};
  return name.ends_with("/other_head") ? json{{"tie_word_embeddings", true}} : json::object();
}

// Writes the changed model.
void write_case(const ScratchFolder& scratch, const std::string& name) {
  const std::string model = name.substr(0, name.find('/'));
  const bool is_family = fs::exists(kTiedCases + model);
  const std::string folder = kTiedCases + (is_family ? "" : "../") + model;
  json keys = json::parse(read_file(folder + "/config.json"));
  keys.update(keys_of(name));
  TensorDict tensors = read_safetensors(folder + "/model.safetensors");
  change_of(name)(tensors);
  scratch.write("config.json", keys.dump());
  write_safetensors(scratch / "model.safetensors", tensors);
  fs::copy_file(folder + (is_family ? "/inputs.safetensors" : "/batch.safetensors"), scratch / "inputs.safetensors");
}

json expected_logits() { return json::parse(read_file(GANTRY_SOURCE_DIR "/tests/golden/weights/logits.json")); }

std::vector<std::string> tied_cases() {
  std::vector<std::string> names;
  const json all = expected_logits();
  for (const auto& [name, logits] : all.items()) names.push_back(name);
  return names;
}

class StoredTies : public ::testing::TestWithParam<std::string> {};

TEST_P(StoredTies, LogitsAreThoseOfTransformers) {
  const ScratchFolder scratch;
  write_case(scratch, GetParam());
  const json all = expected_logits();
  const auto values = all[GetParam()].get<std::vector<double>>();
  const torch::Tensor expected = torch::tensor(values, torch::kFloat64);
  std::vector<Layout> layouts = {{}};
  if (GetParam().starts_with("t5/")) layouts = {{}, {.pipeline = 2, .tensor = 2}};
  for (const Layout& layout : layouts) {
    const torch::Tensor logits = run_family(scratch.path(), layout, false).outputs.at("logits");
    const torch::Tensor last = logits[0][-1].narrow(0, 0, expected.size(0)).to(torch::kFloat64);
    EXPECT_LE((last - expected).abs().max().item<double>(), 5e-5) << last << expected;
  }
}

INSTANTIATE_TEST_SUITE_P(All, StoredTies, ::testing::ValuesIn(tied_cases()), [](const auto& test) {
  std::string name = test.param;
  std::replace(name.begin(), name.end(), '/', '_');
  return name;
});

TEST(StoredTies, AnEqualHeadStaysTied) {
  const ScratchFolder scratch;
  json keys = json::parse(read_file(kTiedCases + "gemma/config.json"));
  TensorDict tensors = read_safetensors(kTiedCases + "gemma/model.safetensors");
  tensors.set("lm_head.weight", tensors.at("model.embed_tokens.weight").to(torch::kFloat64));
  scratch.write("config.json", keys.dump());
  write_safetensors(scratch / "model.safetensors", tensors);
  Config config;
  config.model.path = scratch.path();
  config = resolve_model(std::move(config));
  EXPECT_EQ(json::parse(config.model.config_json), keys);
}

TEST(StoredTies, ForwardSaysItInOneLineAndExportKeepsTheHead) {
  const ScratchFolder scratch, exported;
  write_case(scratch, "gemma/other_head");
  const std::string gantry = gantry_program();
  const Outcome forward = run_program(gantry + " forward --model " + scratch.path() + " --batch " +
                                      (scratch / "inputs.safetensors") + " --output " + (exported / "o.safetensors"));
  ASSERT_EQ(forward.exit_code, 0) << forward.err;
  EXPECT_EQ(forward.err, "warning: " + scratch.path() +
                             ": lm_head.weight differs from model.embed_tokens.weight, so it is used, although "
                             "config.json ties the two\n");
  const Outcome made = run_program(gantry + " checkpoint import " + scratch.path() + " " + (exported / "ck"));
  ASSERT_EQ(made.exit_code, 0) << made.err;
  const Outcome out = run_program(gantry + " checkpoint export " + (exported / "ck") + " " + (exported / "model"));
  ASSERT_EQ(out.exit_code, 0) << out.err;
  EXPECT_EQ(json::parse(read_file(exported / "model/config.json"))["tie_word_embeddings"], false);
  EXPECT_TRUE(torch::equal(read_safetensors(exported / "model/model.safetensors").at("lm_head.weight"),
                           read_safetensors(scratch / "model.safetensors").at("lm_head.weight")));
}

}  // namespace
}  // namespace gantry::testing
