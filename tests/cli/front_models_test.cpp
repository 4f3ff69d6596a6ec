// `gantry models`: the families, and the parts of a model's directory.
#include <filesystem>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "program.h"

namespace gantry::testing {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;

constexpr const char* kSmall =
    R"("vocab_size": 256, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2)";

Outcome models_of(const std::string& config, const std::string& flags = "") {
  const ScratchFolder scratch;
  scratch.write("config.json", config);
  return run_program(fmt::format("{} models {} {}", gantry_program(), scratch.path(), flags));
}

TEST(Models, ListsTheFamilies) {
  const Json all = Json::parse(run_program(gantry_program() + " models --json").out);
  EXPECT_GE(all.size(), 40u);
  const std::string text = run_program(gantry_program() + " models").out;
  for (const char* line : {"deepseek_v3", "decoder: rotary positions, latent attention", "whisper", "ALiBi"})
    EXPECT_THAT(text, HasSubstr(line));
}

TEST(Models, ShowsWhatIsReadAndPassedOver) {
  const std::string config = fmt::format(R"({{"model_type": "llama", "architectures": ["LlamaForCausalLM"],
      "torch_dtype": "bfloat16", "is_llama_config": true, {}}})",
                                         kSmall);
  const Outcome run = models_of(config);
  EXPECT_EQ(run.exit_code, 0) << run.err;
  for (const char* line :
       {"configuration: read; keys without effect: is_llama_config", "2 layers, hidden size 16, 2 heads",
        "dtype: bfloat16", "weights: none in this directory", "tokenizer: none", "result: accepted"})
    EXPECT_THAT(run.out, HasSubstr(line));
  const Json json = Json::parse(models_of(config, "--json").out);
  EXPECT_EQ(json["passed_over"], Json({"is_llama_config"}));
  // Two tables of 256 rows, two layers of 4 * 16 * 16 + 3 * 16 * 24 weights and two norms, and the last norm.
  EXPECT_EQ(json["sizes"]["parameters"], 2 * 256 * 16 + 2 * (4 * 256 + 3 * 384 + 32) + 16);
  EXPECT_EQ(json["sizes"]["memory_bytes"]["float32"], 4 * json["sizes"]["parameters"].get<double>());
}

TEST(Models, SaysThatTheHeadIsNew) {
  EXPECT_THAT(models_of(fmt::format(R"({{"model_type": "llama", "architectures": ["LlamaModel"], {}}})", kSmall)).out,
              HasSubstr("head: LlamaModel is not supported; the body is read into LlamaForCausalLM"));
}

TEST(Models, NamesTheHeadForLabels) {
  const auto head_of = [](const std::string& type, const std::string& architecture, const std::string& keys) {
    return models_of(fmt::format(R"({{"model_type": "{}", "architectures": ["{}"], {}}})", type, architecture, keys))
        .out;
  };
  EXPECT_THAT(head_of("llama", "LlamaForSequenceClassification", kSmall),
              HasSubstr("head: LlamaForSequenceClassification\n"));
  EXPECT_THAT(head_of("gpt2", "GPT2ForSequenceClassification", R"("n_layer": 2, "n_head": 2, "n_embd": 16)"),
              HasSubstr("head: GPT2ForSequenceClassification\n"));
  EXPECT_THAT(head_of("t5", "T5ForSequenceClassification", R"("num_layers": 2)"),
              HasSubstr("head: T5ForSequenceClassification is not supported; the body is read into "));
}

TEST(Models, NamesThePartsThatAreNotLoaded) {
  const std::string folder = GANTRY_SOURCE_DIR "/tests/golden/families/mistral3";
  const Outcome run = run_program(gantry_program() + " models " + folder);
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("not loaded: vision_tower, multi_modal_projector; the model is its text decoder"));
  EXPECT_THAT(run.out, HasSubstr("configuration: read; every key is known"));
  EXPECT_THAT(run.out, HasSubstr("3 layers, hidden size 24, 4 heads (2 KV heads), vocabulary 97"));
  const Json json = Json::parse(run_program(gantry_program() + " models --json " + folder).out);
  EXPECT_EQ(json["not_loaded"], Json({"vision_tower", "multi_modal_projector"}));
}

// An index whose files were not downloaded says nothing about the configuration.
TEST(Models, AcceptsADirectoryWithoutWeights) {
  const ScratchFolder scratch;
  scratch.write("config.json", fmt::format(R"({{"model_type": "llama", {}}})", kSmall));
  scratch.write("model.safetensors.index.json",
                R"({"weight_map": {"lm_head.weight": "model-00001-of-00001.safetensors"}})");
  const Outcome run = run_program(gantry_program() + " models " + scratch.path());
  EXPECT_EQ(run.exit_code, 0) << run.out;
  EXPECT_THAT(run.out, HasSubstr("weights: none in this directory"));
}

TEST(Models, RefusesAnIndexThatDiffersFromItsFiles) {
  const ScratchFolder scratch;
  const std::string golden = GANTRY_SOURCE_DIR "/tests/golden/llama/";
  std::filesystem::copy(golden + "config.json", scratch / "config.json");
  std::filesystem::copy(golden + "model.safetensors", scratch / "model-00001-of-00001.safetensors");
  const auto run_with = [&](const std::string& tensor) {
    const Json index = {{"weight_map", {{tensor, "model-00001-of-00001.safetensors"}}}};
    scratch.write("model.safetensors.index.json", index.dump());
    return run_program(gantry_program() + " models " + scratch.path());
  };
  EXPECT_EQ(run_with("model.norm.weight").exit_code, 0);
  const Outcome refused = run_with("model.none.weight");
  EXPECT_EQ(refused.exit_code, 3);
  EXPECT_THAT(refused.out, HasSubstr("the file has no tensor 'model.none.weight', which the index lists"));
}

TEST(Models, RefusesByNameWithExit3) {
  const Outcome quantised = models_of(fmt::format(
      R"({{"model_type": "llama", "quantization_config": {{"quant_method": "gptq", "bits": 4}}, {}}})", kSmall));
  EXPECT_EQ(quantised.exit_code, 3);
  EXPECT_THAT(quantised.out, HasSubstr("configuration: refused: model.config.quantization_config: the weights are "
                                       "quantised by GPTQ in 4 bits"));
  EXPECT_THAT(quantised.out, HasSubstr("result: refused"));
  const Outcome unknown = models_of(R"({"model_type": "qwen33"})", "--json");
  EXPECT_EQ(unknown.exit_code, 3);
  EXPECT_THAT(Json::parse(unknown.out)["refused"]["configuration"].get<std::string>(),
              HasSubstr("did you mean 'qwen3'?"));
  EXPECT_EQ(run_program(gantry_program() + " models /nowhere").exit_code, 4);
}

// `gantry config` reads the same keys.
TEST(ConfigOfAModel, WarnsOrRefuses) {
  const ScratchFolder scratch;
  std::filesystem::create_directory(scratch / "m");
  const auto config = [&](const std::string& keys, const std::string& flags = "") {
    scratch.write("m/config.json", keys);
    const std::string file = scratch.write("c.yaml", "model: {path: " + (scratch / "m") + "}\n");
    return run_program(fmt::format("{} config {} {}", gantry_program(), file, flags));
  };
  const std::string extra = fmt::format(R"({{"model_type": "bert", "unsloth_fixed": true, {}}})", kSmall);
  const Outcome warned = config(extra);
  EXPECT_EQ(warned.exit_code, 0) << warned.err;
  EXPECT_THAT(warned.err, HasSubstr("1 key that is unknown to bert: unsloth_fixed"));
  const Outcome refused = config(extra, "--set model.unknown_keys=refuse");
  EXPECT_EQ(refused.exit_code, 3);
  EXPECT_THAT(refused.err, HasSubstr("model.config.unsloth_fixed: unknown key of bert"));
  const Outcome unknown = config(R"({"model_type": "kimi_k3", "num_hidden_layers": 61})");
  EXPECT_EQ(unknown.exit_code, 3);
  EXPECT_THAT(unknown.err, HasSubstr("model_type 'kimi_k3' is not supported by Gantry"));
  EXPECT_THAT(config(R"({"model_type": "a_model_of_my_own"})").err,
              HasSubstr("register a model family for it, and name its library with --set 'libraries=[FILE]'"));
}

TEST(ConfigOfAModel, NamesUnknownKeysBeforeRefusedValues) {
  const ScratchFolder scratch;
  const std::string file = scratch.write(
      "c.yaml", fmt::format("model: {{policy: llama, config: {{hidden_size: 48, num_attention_hed: 4}}}}\n"
                            "lora: {{r: 2, target_modules: all-linear}}\ndata: {{format: text, path: \"{}\"}}\n"
                            "train: {{steps: 1}}\n",
                            scratch.write("text.txt", "abc")));
  for (const char* command : {"config", "train"}) {
    const Outcome run = run_program(fmt::format("{} {} {}", gantry_program(), command, file));
    EXPECT_EQ(run.exit_code, 3) << command;
    EXPECT_THAT(run.err, HasSubstr("model.config.num_attention_hed: unknown key of llama")) << command;
  }
}

}  // namespace
}  // namespace gantry::testing
