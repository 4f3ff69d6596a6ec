// Directories of sentence-transformers: errors name the modules that Gantry cannot compute.
#include "gantry/models/described/sentence_modules.h"

#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gantry/core/error.h"
#include "gantry/models/described/config_keys.h"
#include "gantry/models/model_family.h"
#include "program.h"
#include "thrown_by.h"

namespace gantry::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

// The directory of a model with these modules: {class, path}.
class SentenceFolder {
 public:
  explicit SentenceFolder(const std::vector<std::pair<std::string, std::string>>& modules) {
    json listed = json::array();
    for (const auto& [name, path] : modules) {
      if (name == "Pooling") write(path, "{}");
      listed.push_back({{"idx", listed.size()}, {"path", path}, {"type", "sentence_transformers.models." + name}});
    }
    scratch.write("modules.json", listed.dump());
  }
  void write(const std::string& module, const std::string& text) const {
    std::filesystem::create_directories(scratch / module);
    scratch.write(module + "/config.json", text);
  }
  json keys() const {
    json keys = json::object();
    models::add_sentence_modules(keys, scratch.path());
    return keys;
  }
  std::string refusal() const {
    return thrown_by<ConfigError>([&] { models::families().at("distilbert").check(keys()); });
  }

  ScratchFolder scratch;
};

TEST(SentenceModules, BelongToTheModelWithoutAHead) {
  const SentenceFolder folder({{"Transformer", ""}, {"Pooling", "1_Pooling"}, {"Normalize", "2_Normalize"}});
  const auto& family = models::families().at("distilbert");
  json keys = folder.keys();
  keys["architectures"] = {"DistilBertForMaskedLM"};
  EXPECT_EQ(family.task(keys), "none");
  EXPECT_EQ(family.hugging_face_config(keys)["architectures"], json({"DistilBertModel"}));
  EXPECT_FALSE(family.hugging_face_config(keys).contains(models::kSentenceModules));
  EXPECT_EQ(family.config_fingerprint(keys)["sentence_pooling"], json({"mean"}));
  models::override_keys(keys, {{"architectures", {"DistilBertForMaskedLM"}}});
  EXPECT_EQ(family.task(keys), "tokens");
}

TEST(SentenceModules, WithoutAPoolingChangeNothing) {
  const std::vector<std::pair<std::string, std::string>> bare = {{"Transformer", ""}};
  EXPECT_TRUE(SentenceFolder(bare).keys().empty());
  EXPECT_TRUE(SentenceFolder({{"Transformer", ""}, {"SpladePooling", "1_SpladePooling"}}).keys().empty());
  json keys = json::object();
  models::add_sentence_modules(keys, ScratchFolder().path());
  EXPECT_TRUE(keys.empty());
}

TEST(SentenceModules, ThatGantryDoesNotComputeAreNamed) {
  const SentenceFolder dense({{"Transformer", ""}, {"Pooling", "1_Pooling"}, {"Dense", "2_Dense"}});
  dense.write("2_Dense", R"({"in_features": 4})");
  EXPECT_THAT(dense.refusal(),
              HasSubstr("2_Dense/config.json: Gantry does not compute module 2, Dense; expected Transformer, Pooling "
                        "and optionally Normalize, in this order; set model.config.architectures to read the model "
                        "without its sentence embedding"));
  EXPECT_THAT(SentenceFolder({{"WordEmbeddings", "0"}, {"Pooling", "1_Pooling"}}).refusal(),
              HasSubstr("modules.json: Gantry does not compute module 0, WordEmbeddings"));
  EXPECT_THAT(SentenceFolder({{"Transformer", "0_Transformer"}, {"Pooling", "1_Pooling"}}).refusal(),
              HasSubstr("the Transformer is in the subdirectory 0_Transformer"));
}

TEST(SentenceModules, PoolingThatGantryDoesNotComputeIsNamed) {
  const SentenceFolder folder({{"Transformer", ""}, {"Pooling", "1_Pooling"}, {"Normalize", "2_Normalize"}});
  const auto refusal = [&](const std::string& pooling, const std::string& normalize = "{}") {
    folder.write("1_Pooling", pooling);
    folder.write("2_Normalize", normalize);
    return folder.refusal();
  };
  EXPECT_THAT(refusal(R"({"pooling_mode_mean_tokens": true, "pooling_mode_weightedmean_tokens": true})"),
              HasSubstr("1_Pooling/config.json: Gantry does not support the pooling mode weightedmean"));
  EXPECT_THAT(refusal(R"({"pooling_mode": "attention"})"), HasSubstr("the pooling mode attention"));
  EXPECT_THAT(refusal(R"({"pooling_mode": 3})"), HasSubstr("pooling_mode is 3; expected the name of a mode"));
  EXPECT_THAT(refusal(R"({"include_prompt": false})"), HasSubstr("include_prompt is false"));
  EXPECT_THAT(refusal("[1]"), HasSubstr("1_Pooling/config.json: the file is [1]; expected an object"));
  EXPECT_THAT(refusal("{}", R"({"module_input_name": "token_embeddings"})"),
              HasSubstr("module_input_name is \"token_embeddings\"; expected sentence_embedding"));
}

TEST(SentenceModules, InAConfigurationFileAreRejected) {
  for (const char* text : {"3", "[3]", "{}", R"([{"class": "Pooling", "path": "", "where": 3, "config": {}}])"})
    EXPECT_THAT(thrown_by<ConfigError>([&] {
                  models::families().at("bert").check({{models::kSentenceModules, json::parse(text)}});
                }),
                HasSubstr("sentence_modules"))
        << text;
}

TEST(SentenceModules, FilesThatCannotBeReadAreNamed) {
  const SentenceFolder folder({{"Transformer", ""}, {"Pooling", "1_Pooling"}});
  const auto fault = [&](const std::string& text) {
    folder.scratch.write("modules.json", text);
    return thrown_by<InputError>([&] { folder.keys(); });
  };
  for (const char* text : {"{}", "[3]", R"([{"type": 3}])", R"([{"path": null}])", R"([{"path": "../b"}])"})
    EXPECT_THAT(fault(text), HasSubstr("modules.json: the file is not a list of modules")) << text;
  EXPECT_THAT(fault("[{"), HasSubstr("modules.json: "));
  EXPECT_THAT(fault(R"([{"path": "2_Pooling", "type": "Pooling"}])"), HasSubstr("2_Pooling/config.json: "));
}

}  // namespace
}  // namespace gantry::testing
