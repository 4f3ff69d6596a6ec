// The files of a model directory besides its weights, in checkpoints and exports. RoPE keys in both
// spellings.
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gantry/checkpoint/format/companion_files.h"
#include "gantry/checkpoint/format/find.h"
#include "gantry/checkpoint/format/rope_spellings.h"
#include "gantry/checkpoint/format/staged_files.h"
#include "gantry/checkpoint/format/verify.h"
#include "program.h"
#include "thrown_by.h"
#include "tiny_checkpoint.h"

namespace gantry::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

void write_at(const ScratchFolder& scratch, const std::string& name, const std::string& text) {
  fs::create_directories(fs::path(scratch / name).parent_path());
  scratch.write(name, text);
}

std::vector<std::string> names_of(const CompanionFiles& files) {
  std::vector<std::string> names;
  for (const auto& [name, text] : files.contents) names.push_back(name);
  return names;
}

TEST(Companions, AreAllFilesButWeightsAndThoseThatAnExportWrites) {
  const ScratchFolder scratch;
  for (const char* name :
       {"m/config.json", "m/model.safetensors", "m/model.safetensors.index.json", "m/pytorch_model.bin",
        "m/pytorch_model.bin.index.json", "m/.gitattributes", "m/onnx/model.json", "m/adapter_config.json",
        "m/tokenizer.json", "m/merges.txt", "m/LICENSE", "m/modeling_custom.py",
        "m/additional_chat_templates/tool_use.jinja", "m/1_Pooling/config.json", "m/2_Dense/model.safetensors",
        "m/tiktoken.model", "m/qwen.tiktoken"})
    write_at(scratch, name, std::string("content of ") + name);
  fs::create_symlink(scratch / "m/LICENSE", scratch / "m/README.md");  // the cache of the hub has links
  const CompanionFiles files = read_companion_files(scratch / "m");
  EXPECT_THAT(names_of(files),
              ElementsAre("1_Pooling/config.json", "LICENSE", "README.md", "additional_chat_templates/tool_use.jinja",
                          "merges.txt", "modeling_custom.py", "qwen.tiktoken", "tiktoken.model", "tokenizer.json"));
  EXPECT_EQ(files.contents.at("additional_chat_templates/tool_use.jinja"),
            "content of m/additional_chat_templates/tool_use.jinja");
  EXPECT_THAT(files.left_out, ElementsAre());
  EXPECT_THAT(names_of(read_companion_files(scratch / "missing")), ElementsAre());
  EXPECT_THAT(names_of(read_companion_files("")), ElementsAre());
}

TEST(Companions, LargeOnesAreLeftOutAndNamed) {
  const ScratchFolder scratch;
  write_at(scratch, "m/a.txt", std::string(90, 'a'));
  write_at(scratch, "m/b.txt", std::string(8, 'b'));
  const CompanionFiles files = read_companion_files(scratch / "m", 97);
  EXPECT_THAT(names_of(files), ElementsAre("b.txt"));
  ASSERT_EQ(files.left_out.size(), 1u);
  EXPECT_THAT(files.left_out[0], HasSubstr("m/a.txt: the file is not copied"));
}

TEST(Companions, ACheckpointHasHashesOfItsCopies) {
  const ScratchFolder scratch;
  FaultyFiles files;
  CheckpointFolder folder(scratch / "c", files);
  folder.begin(1, 1000);
  for (int rank = 0; rank < kTinyRanks; ++rank)
    write_part(folder.partial(1), write_tiny_rank(folder.partial(1), rank, 0, files), files);
  const CompanionFiles companions{
      {{"tokenizer.json", "{}"}, {"additional_chat_templates/a.jinja", "text"}, {"empty.txt", ""}}, {}};
  const std::string step = folder.commit({.step = 1, .policy = "gpt2"}, kTinyRanks, {}, companions);
  EXPECT_EQ(read_file(step + "/model_files/additional_chat_templates/a.jinja"), "text");
  const Manifest manifest = read_manifest(step);
  EXPECT_EQ(manifest.companions.size(), 3u);
  EXPECT_EQ(companion_directory(step, manifest), step + "/model_files");
  EXPECT_EQ(verify_checkpoint(step).files, kTinyRanks + 3u);
  EXPECT_TRUE(verify_checkpoint(step).faults.empty());
  EXPECT_EQ(completeness_fault(step), "");

  scratch.write("c/step-000001/model_files/tokenizer.json", "[]");
  EXPECT_THAT(verify_checkpoint(step).faults.at(0), HasSubstr("model_files/tokenizer.json: the hash of the file is"));
  EXPECT_THAT(thrown_by<CheckpointError>([&] { check_all_hashes(step, manifest); }), HasSubstr("tokenizer.json"));
  fs::remove(step + "/model_files/tokenizer.json");
  EXPECT_THAT(completeness_fault(step), HasSubstr("model_files/tokenizer.json is missing"));
}

TEST(Companions, ACheckpointWithoutCopiesNamesTheModelOfItsRun) {
  const std::string config = "model: {path: models/base}\n";
  EXPECT_EQ(companion_directory("c/step-000001", {.config_text = config}), "models/base");
  EXPECT_EQ(companion_directory("c/step-000001", {}), "");
}

TEST(Companions, AManifestWithAPathOutsideIsRefused) {
  for (const char* path : {"../a", "a/../b", "/a", "a/b/c", "a/"}) {
    Manifest manifest{.model_config = json::object()};
    manifest.companions[path] = {std::string(32, '0'), 1};
    EXPECT_THAT(thrown_by<CheckpointError>([&] { parse_manifest(manifest_text(manifest), "m"); }),
                HasSubstr("it lists the file"))
        << path;
  }
}

TEST(Companions, ADirectoryOfTheSameNameIsReplacedByAnExport) {
  const ScratchFolder scratch;
  FaultyFiles files;
  write_at(scratch, "m/additional_chat_templates/old.jinja", "old");
  StagedFiles staged(scratch / "m", files);
  write_companion_files(StagedFiles::folder(scratch / "m"), {{{"additional_chat_templates/new.jinja", "new"}}, {}},
                        files);
  staged.place();
  EXPECT_THAT(names_of(read_companion_files(scratch / "m")), ElementsAre("additional_chat_templates/new.jinja"));
}

json completed(const char* text) {
  json config = json::parse(text);
  complete_rope_spellings(config);
  return config;
}

TEST(RopeSpellings, OlderKeysGetRopeParameters) {
  EXPECT_EQ(completed(R"({"model_type": "llama", "rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2}})"),
            json::parse(R"({"model_type": "llama", "rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2},
              "rope_parameters": {"type": "linear", "rope_type": "linear", "factor": 2, "rope_theta": 5e5}})"));
  EXPECT_EQ(completed(R"({"rope_theta": 1e4, "rope_scaling": null, "partial_rotary_factor": 0.5})")["rope_parameters"],
            json::parse(R"({"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5})"));
  EXPECT_EQ(completed(R"({"model_type": "gpt_neox", "rotary_emb_base": 1e4, "rotary_pct": 0.3})")["rope_parameters"],
            json::parse(R"({"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.3})"));
  EXPECT_EQ(completed(R"({"model_type": "gemma3_text", "rope_theta": 1e6, "rope_local_base_freq": 1e4,
                          "rope_scaling": {"rope_type": "linear", "factor": 8}})")["rope_parameters"],
            json::parse(R"({"full_attention": {"rope_type": "linear", "factor": 8, "rope_theta": 1e6},
                            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}})"));
}

TEST(RopeSpellings, RopeParametersGetTheOlderKeys) {
  EXPECT_EQ(completed(R"({"rope_scaling": null, "rope_parameters":
                          {"rope_type": "yarn", "factor": 2, "rope_theta": 5, "partial_rotary_factor": 0.5}})"),
            json::parse(R"({"rope_theta": 5, "partial_rotary_factor": 0.5,
                            "rope_scaling": {"rope_type": "yarn", "factor": 2}, "rope_parameters":
                            {"rope_type": "yarn", "factor": 2, "rope_theta": 5, "partial_rotary_factor": 0.5}})"));
  const json neox = completed(R"({"model_type": "gpt_neox", "rope_parameters":
                                  {"rope_type": "default", "rope_theta": 5, "partial_rotary_factor": 0.5}})");
  EXPECT_EQ(neox["rotary_emb_base"], 5);
  EXPECT_EQ(neox["rotary_pct"], 0.5);
  EXPECT_FALSE(neox.contains("rope_theta") || neox.contains("rope_scaling"));
  const json phi = completed(R"({"model_type": "phi3", "rope_parameters": {"rope_type": "longrope", "rope_theta": 5,
      "short_factor": [1], "long_factor": [2], "original_max_position_embeddings": 64}})");
  EXPECT_EQ(phi["rope_scaling"], json::parse(R"({"type": "longrope", "short_factor": [1], "long_factor": [2]})"));
  EXPECT_EQ(phi["original_max_position_embeddings"], 64);
  const json gemma = completed(R"({"model_type": "gemma3_text", "rope_parameters":
      {"full_attention": {"rope_type": "linear", "factor": 8, "rope_theta": 6},
       "sliding_attention": {"rope_type": "default", "rope_theta": 4}}})");
  EXPECT_EQ(gemma["rope_theta"], 6);
  EXPECT_EQ(gemma["rope_local_base_freq"], 4);
  EXPECT_EQ(gemma["rope_scaling"], json::parse(R"({"rope_type": "linear", "factor": 8})"));
}

TEST(RopeSpellings, NothingIsInventedAndNothingThatIsThereChanges) {
  for (const char* text : {R"({"model_type": "gpt2", "n_embd": 8})",
                           R"({"rope_theta": 1, "rope_parameters": {"rope_theta": 1}})", R"({"rope_parameters": "x"})",
                           R"({"rope_parameters": {"full_attention": {"rope_theta": 6},
                                                   "sliding_attention": {"rope_theta": 4}}})"})
    EXPECT_EQ(completed(text), json::parse(text)) << text;
}

}  // namespace
}  // namespace gantry::testing
