// Adapters of models with a head for labels: the head is trained in full and is part of the adapter's files, as in
// PEFT.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gantry/checkpoint/adapter.h"
#include "gantry/checkpoint/checkpoint.h"
#include "gantry/checkpoint/safetensors.h"
#include "gantry/core/sharding/adapter_split.h"
#include "gantry/models/peft_names.h"
#include "gantry/tensors/libtorch.h"
#include "lora_rig.h"
#include "program.h"

namespace gantry::testing {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

struct HeadCase {
  const char* family;
  const char* keys;
  const char* head;  // in Hugging Face's names
  const char* task;
};

constexpr HeadCase kHeadCases[] = {
    {"bert",
     R"({"architectures": ["BertForSequenceClassification"], "num_hidden_layers": 2, "num_attention_heads": 2,
         "hidden_size": 8, "intermediate_size": 12, "vocab_size": 31, "max_position_embeddings": 8, "num_labels": 3,
         "hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0})",
     "classifier", "SEQ_CLS"},
    {"roberta",
     R"({"architectures": ["RobertaForSequenceClassification"], "num_hidden_layers": 2, "num_attention_heads": 2,
         "hidden_size": 8, "intermediate_size": 12, "vocab_size": 31, "max_position_embeddings": 12, "num_labels": 3,
         "hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0})",
     "classifier", "SEQ_CLS"},
    {"modernbert",
     R"({"architectures": ["ModernBertForSequenceClassification"], "num_hidden_layers": 2, "num_attention_heads": 2,
         "hidden_size": 8, "intermediate_size": 12, "vocab_size": 31, "max_position_embeddings": 8, "num_labels": 3,
         "local_attention": 4})",
     "classifier", "SEQ_CLS"},
    {"llama",
     R"({"architectures": ["LlamaForSequenceClassification"], "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "hidden_size": 24, "intermediate_size": 26, "vocab_size": 31,
         "max_position_embeddings": 8, "num_labels": 3, "pad_token_id": 0})",
     "score", "SEQ_CLS"}};

Config head_config(const HeadCase& one, const LoraLayout& how = {}) {
  return resolve_model(parts_config(one.family, one.keys, {"all-linear"}, how));
}

TensorDict labelled(int step) {
  return {{"input_ids", (torch::arange(6 * 7).view({6, 7}) * 11 + 5 * step) % 30 + 1},
          {"labels", (torch::arange(6) + step) % 3}};
}

TEST(LoraHeads, AreTrainedInFullAndGetNoAdapter) {
  for (const HeadCase& one : kHeadCases) {
    const Config config = head_config(one);
    EXPECT_THAT(config.lora.modules_to_save, ElementsAre(one.head)) << one.family;
    const auto model = build_model(config);
    const auto names = models::families().at(one.family).tensor_names(nlohmann::json::parse(config.model.config_json));
    std::vector<std::string> parameters;
    for (const auto& item : model->named_parameters()) parameters.push_back(item.key());
    int trained = 0;
    for (const auto& name : models::trained_names(parameters, config.lora, names)) {
      const bool is_head = name.hugging_face.starts_with(std::string("base_model.model.") + one.head + ".");
      trained += is_head ? 1 : 0;
      EXPECT_NE(is_head, is_adapter(name.name)) << name.hugging_face;
      EXPECT_TRUE(model->named_parameters()[name.name].requires_grad()) << name.hugging_face;
    }
    EXPECT_GT(trained, 0) << one.family;
  }
}

TEST(LoraHeads, TheListInTheConfigurationDecides) {
  Config config = parts_config(kHeadCases[0].family, kHeadCases[0].keys, {"query", "classifier"}, {});
  EXPECT_THAT(resolve_model(config).lora.modules_to_save, IsEmpty()) << "the head has an adapter";
  config.lora.target_modules = {"query"};
  config.lora.modules_to_save = {"classifier", "pooler"};
  EXPECT_THAT(resolve_model(config).lora.modules_to_save, ElementsAre("classifier", "pooler"));
}

// "dense" also names a layer of RoBERTa's head.
TEST(LoraHeads, AnEntryForLayersInsideAndOutsideMeansThoseOutside) {
  const Config config = resolve_model(parts_config(kHeadCases[1].family, kHeadCases[1].keys, {"dense"}, {}));
  for (const auto& item : build_model(config)->named_parameters())
    EXPECT_FALSE(is_adapter(item.key()) && item.key().starts_with("classifier")) << item.key();
}

TEST(LoraHeads, TrainInLayoutsAsOnOneDevice) {
  for (const HeadCase& one : kHeadCases) {
    const auto run = [&](const LoraLayout& how) { return run_lora(head_config(one, how), 2, {}, {}, 0, labelled); };
    const LoraRun alone = run({});
    for (const LoraLayout& how : {LoraLayout{.layout = {.pipeline = 2, .tensor = 2}},
                                  LoraLayout{.layout = {.data = 2, .tensor = 2}, .sequence_parallel = true, .zero = 3}})
      expect_same_run(alone, run(how), std::string(one.family) + " " + describe(how));
  }
}

// Saves a checkpoint of one rank after a step, and exports it as PEFT's files.
void export_after_a_step(const Config& config, const ScratchFolder& scratch) {
  run_lora(
      config, 1, {},
      [&](Rig& rig) {
        save_checkpoint({.directory = scratch / "checkpoint",
                         .step = 1,
                         .config_text = config.to_yaml(),
                         .model_config = nlohmann::json::parse(config.model.config_json),
                         .policy = config.model.policy},
                        rig.plugin->state(rig.boosted), rig.plugin->mesh());
      },
      0, labelled);
  export_adapter(scratch / "checkpoint/step-000001", scratch / "adapter", {});
}

TEST(LoraHeads, ArePartOfTheAdaptersFiles) {
  for (const HeadCase& one : kHeadCases) {
    const ScratchFolder scratch;
    Config config = head_config(one);
    export_after_a_step(config, scratch);
    std::vector<std::string> names;
    for (const auto& [name, tensor] : read_safetensors(scratch / "adapter/adapter_model.safetensors"))
      names.push_back(name);
    const bool is_roberta = std::string(one.family) == "roberta";
    EXPECT_THAT(names,
                Contains(std::string("base_model.model.") + one.head + (is_roberta ? ".out_proj.weight" : ".weight")));
    auto keys = nlohmann::json::parse(read_file(scratch / "adapter/adapter_config.json"));
    EXPECT_EQ(keys.at("task_type"), one.task);
    keys["modules_to_save"] = {"classifier", "score"};  // PEFT writes both for every model
    scratch.write("adapter/adapter_config.json", keys.dump());
    config = parts_config(one.family, one.keys, {}, {});
    config.lora = {.path = scratch / "adapter"};
    config = resolve_model(config);
    EXPECT_THAT(config.lora.modules_to_save, ElementsAre(one.head));
    build_model(config);
  }
}

}  // namespace
}  // namespace gantry::testing
