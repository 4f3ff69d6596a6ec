// Merging: tables of a tied model, incomplete adapters, and the precision of the sum.
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "family_case.h"
#include "gantry/checkpoint/adapter.h"
#include "gantry/checkpoint/safetensors.h"
#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"
#include "program.h"

namespace gantry::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;

const std::string kAdapters = GANTRY_SOURCE_DIR "/tests/golden/lora/";
const std::string kTiedBase = GANTRY_SOURCE_DIR "/tests/golden/families/gemma";

// PEFT uses the base's table if the adapter has not trained it.
TEST(MergedTables, OfATiedModelAreSeparate) {
  const json logits = json::parse(read_file(kAdapters + "saved_tables/logits.json"));
  for (const std::string name : {"embed_tokens", "lm_head", "both"}) {
    const ScratchFolder scratch;
    merge_adapter(kAdapters + "saved_tables/" + name, kTiedBase, scratch / "merged");
    const TensorDict merged = read_safetensors(scratch / "merged/model.safetensors");
    EXPECT_EQ(json::parse(read_file(scratch / "merged/config.json"))["tie_word_embeddings"], false) << name;
    ASSERT_TRUE(merged.contains("lm_head.weight") && merged.contains("model.embed_tokens.weight")) << name;
    fs::copy_file(kTiedBase + "/inputs.safetensors", scratch / "merged/inputs.safetensors");
    const torch::Tensor found = run_family(scratch / "merged", {}, false).outputs.at("logits");
    const auto expected = logits[name].get<std::vector<double>>();
    for (std::size_t i = 0; i < expected.size(); ++i)
      EXPECT_NEAR(found[0][-1][static_cast<std::int64_t>(i)].item<double>(), expected[i], 5e-5) << name << " " << i;
  }
}

TEST(MergedTables, OfATiedModelWhoseFilesHaveTheHeadToo) {
  const ScratchFolder scratch;
  fs::create_directory(scratch / "base");
  fs::copy_file(kTiedBase + "/config.json", scratch / "base/config.json");
  TensorDict base = read_safetensors(kTiedBase + "/model.safetensors");
  const torch::Tensor table = base.at("model.embed_tokens.weight");
  base.set("lm_head.weight", table.clone());
  write_safetensors(scratch / "base/model.safetensors", base);
  merge_adapter(kAdapters + "saved_tables/embed_tokens", scratch / "base", scratch / "merged");
  const TensorDict merged = read_safetensors(scratch / "merged/model.safetensors");
  EXPECT_TRUE(torch::equal(merged.at("lm_head.weight"), table));
  EXPECT_FALSE(torch::equal(merged.at("model.embed_tokens.weight"), table));
  EXPECT_EQ(json::parse(read_file(scratch / "merged/config.json"))["tie_word_embeddings"], false);
}

// PEFT lists the heads of all kinds of models in modules_to_save, and with all-linear a head's layers as targets too.
TEST(MergedHeads, OfAClassifierReplaceTheBases) {
  const std::string base = GANTRY_SOURCE_DIR "/tests/golden/heads/bert_single";
  const ScratchFolder scratch;
  fs::create_directory(scratch / "adapter");
  scratch.write(
      "adapter/adapter_config.json",
      R"({"peft_type": "LORA", "task_type": "SEQ_CLS", "r": 1, "lora_alpha": 2, "target_modules": ["query", "classifier"],
                    "modules_to_save": ["classifier", "score"]})");
  const std::string body = "base_model.model.bert.encoder.layer.0.attention.self.query.";
  const torch::Tensor head = torch::arange(24, torch::kFloat32).view({3, 8});
  write_safetensors(scratch / "adapter/adapter_model.safetensors",
                    {{body + "lora_A.weight", torch::ones({1, 8})},
                     {body + "lora_B.weight", torch::ones({8, 1})},
                     {"base_model.model.classifier.weight", head},
                     {"base_model.model.classifier.bias", torch::ones({3})}});
  merge_adapter(scratch / "adapter", base, scratch / "merged");
  const TensorDict merged = read_safetensors(scratch / "merged/model.safetensors");
  const TensorDict before = read_safetensors(base + "/model.safetensors");
  const std::string query = "bert.encoder.layer.0.attention.self.query.weight";
  EXPECT_TRUE(torch::equal(merged.at("classifier.weight"), head));
  EXPECT_TRUE(torch::allclose(merged.at(query), before.at(query) + 2));
}

// A copy of an adapter without the tensors whose names have `without` in them.
std::string part_of_adapter(const ScratchFolder& scratch, const std::string& from, const std::string& without) {
  fs::create_directories(scratch / "adapter");
  fs::copy_file(from + "/adapter_config.json", scratch / "adapter/adapter_config.json");
  TensorDict kept;
  for (const auto& [name, tensor] : read_safetensors(from + "/adapter_model.safetensors"))
    if (name.find(without) == std::string::npos) kept.set(name, tensor);
  write_safetensors(scratch / "adapter/adapter_model.safetensors", kept);
  return scratch / "adapter";
}

TEST(MergedAdapters, ThatCoverAPartOfTheirLayersAreRefused) {
  for (const std::string without : {"layers.1.", "v_proj", "lora_B"}) {
    const ScratchFolder scratch;
    const std::string adapter = part_of_adapter(scratch, kAdapters + "qv/adapter", without);
    try {
      merge_adapter(adapter, kAdapters + "qv", scratch / "merged");
      ADD_FAILURE() << without;
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), HasSubstr("missing (base_model.model.model.layers."));
      EXPECT_THAT(error.what(), HasSubstr(without));
    }
    EXPECT_FALSE(fs::exists(scratch / "merged/model.safetensors"));
  }
}

// The weights of the base have four bits. Before quantisation they were bfloat16.
TEST(MergedAdapters, OfAQuantisedBaseHaveDecodedWeights) {
  const ScratchFolder scratch;
  const std::string base = kAdapters + "qlora_nf4";
  merge_adapter(base + "/adapter", base, scratch / "merged");
  const TensorDict merged = read_safetensors(scratch / "merged/model.safetensors"),
                   decoded = read_safetensors(base + "/dequantised.safetensors");
  for (const std::string name : {"self_attn.q_proj.weight", "mlp.up_proj.weight"}) {
    const std::string full = "model.layers.0." + name;
    ASSERT_EQ(merged.at(full).scalar_type(), torch::kBFloat16);
    EXPECT_EQ(torch::equal(merged.at(full), decoded.at(full).to(torch::kBFloat16)), name == "mlp.up_proj.weight");
  }
  EXPECT_FALSE(merged.contains("model.layers.0.mlp.up_proj.weight.absmax"));
  EXPECT_FALSE(json::parse(read_file(scratch / "merged/config.json")).contains("quantization_config"));
}

TEST(MergedAdapters, AreAddedInFloat64WhereThatIsWritten) {
  const ScratchFolder scratch;
  merge_adapter(kAdapters + "qv/adapter", kAdapters + "qv", scratch / "merged", {.type = torch::kFloat64});
  const json config = json::parse(read_file(kAdapters + "qv/adapter/adapter_config.json"));
  const TensorDict base = read_safetensors(kAdapters + "qv/model.safetensors"),
                   adapter = read_safetensors(kAdapters + "qv/adapter/adapter_model.safetensors"),
                   merged = read_safetensors(scratch / "merged/model.safetensors");
  const std::string layer = "model.layers.1.self_attn.q_proj";
  const auto factor = [&](const std::string& name) {
    return adapter.at("base_model.model." + layer + name).to(torch::kFloat64);
  };
  const double scale = config["lora_alpha"].get<double>() / config["r"].get<double>();
  const torch::Tensor expected = base.at(layer + ".weight").to(torch::kFloat64) +
                                 scale * torch::matmul(factor(".lora_B.weight"), factor(".lora_A.weight"));
  EXPECT_LE((merged.at(layer + ".weight") - expected).abs().max().item<double>(), 1e-15);
}

// GPT-2 stores its weights as [in, out], so DoRA's rows are columns there.
TEST(MergedAdapters, OfDoraScaleTheRowsOfATransposedWeight) {
  const ScratchFolder scratch;
  const std::string base = kAdapters + "tied_tables";
  fs::create_directory(scratch / "adapter");
  scratch.write("adapter/adapter_config.json",
                R"({"peft_type": "LORA", "r": 1, "lora_alpha": 2, "target_modules": ["c_attn"], "use_dora": true})");
  const torch::Tensor a = torch::sin(torch::arange(16)).view({1, 16}), b = torch::cos(torch::arange(48)).view({48, 1}),
                      magnitudes = torch::arange(1, 49).to(torch::kFloat32);
  TensorDict adapter;
  for (const std::string layer : {"h.0", "h.1"}) {
    const std::string module = "base_model.model.transformer." + layer + ".attn.c_attn";
    adapter.set(module + ".lora_A.weight", a);
    adapter.set(module + ".lora_B.weight", b);
    adapter.set(module + ".lora_magnitude_vector", magnitudes);
  }
  write_safetensors(scratch / "adapter/adapter_model.safetensors", adapter);
  merge_adapter(scratch / "adapter", base, scratch / "merged");
  const TensorDict before = read_safetensors(base + "/model.safetensors"),
                   merged = read_safetensors(scratch / "merged/model.safetensors");
  const std::string weight = "transformer.h.1.attn.c_attn.weight";
  const torch::Tensor rows = before.at(weight).t() + 2 * torch::mm(b, a);
  const torch::Tensor expected = rows * (magnitudes / rows.square().sum(1).sqrt()).unsqueeze(1);
  EXPECT_LE((merged.at(weight).t() - expected).abs().max().item<double>(), 1e-4);
  EXPECT_TRUE(torch::equal(merged.at("transformer.h.1.mlp.c_fc.weight"), before.at("transformer.h.1.mlp.c_fc.weight")));
}

}  // namespace
}  // namespace gantry::testing
