// `gantry checkpoint reshard, import, export` on checkpoints that `gantry train` made.
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <nlohmann/json.hpp>

#include "program.h"

namespace gantry::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;

const std::string kGolden = std::string(GANTRY_SOURCE_DIR) + "/tests/golden/";

Outcome gantry_run(const std::string& arguments) { return run_program(gantry_program() + " " + arguments); }

std::string write_config(const ScratchFolder& scratch) {
  const std::string text = some_letters(2000, 23);
  return scratch.write(
      "train.yaml",
      fmt::format(
          "model: {{policy: gpt2, config: {{n_embd: 16, n_layer: 4, n_head: 2, vocab_size: 256, n_positions: 16, "
          "resid_pdrop: 0.1}}}}\ndata: {{format: text, path: \"{}\", sequence_length: 16, batch_size: 4}}\n"
          "train: {{steps: 4}}\nparallel: {{tensor: 2, pipeline: 2}}\nprecision: bfloat16\n",
          scratch.write("text.txt", text)));
}

bool are_equal(const std::string& a, const std::string& b) {
  const Outcome diff = gantry_run("checkpoint diff --json " + a + " " + b);
  EXPECT_EQ(diff.exit_code, 0) << diff.err;
  return diff.exit_code == 0 && json::parse(diff.out)["equal"].get<bool>();
}

TEST(CheckpointProgram, ReshardedCheckpointsHoldTheSameAndGoOnIdentically) {
  const ScratchFolder scratch;
  const std::string config = write_config(scratch), saved = scratch / "c";
  ASSERT_EQ(gantry_run("train " + config + " --set checkpoint.path=" + saved).exit_code, 0);
  const Outcome resharded = gantry_run("checkpoint reshard --json " + saved + " " + (scratch / "r") +
                                       " --set parallel.tensor=1 --set parallel.pipeline=1 --set parallel.data=3");
  ASSERT_EQ(resharded.exit_code, 0) << resharded.err;
  const std::string made = json::parse(resharded.out)["to"];
  EXPECT_EQ(made, scratch / "r/step-000004");
  EXPECT_EQ(gantry_run("checkpoint verify " + made).exit_code, 0);
  EXPECT_TRUE(are_equal(saved, made));
  const auto before = json::parse(gantry_run("checkpoint inspect --json " + saved).out);
  const auto after = json::parse(gantry_run("checkpoint inspect --json " + made).out);
  EXPECT_EQ(after["layout"]["dp"], 3);
  EXPECT_EQ(after["files"].size(), 3u);
  for (const char* kept : {"step", "numbers", "progress", "model_config", "threads_per_rank"})
    EXPECT_EQ(before[kept], after[kept]) << kept;
  // Both lead to the same: the original layout resumes from either.
  for (const char* from : {"c", "r"}) {
    const Outcome run =
        gantry_run("train " + config + " --set train.steps=6 --set checkpoint.resume=" + (scratch / from) +
                   " --set checkpoint.path=" + (scratch / (std::string(from) + "2")));
    ASSERT_EQ(run.exit_code, 0) << run.err;
  }
  EXPECT_TRUE(are_equal(scratch / "c2", scratch / "r2"));
  EXPECT_FALSE(are_equal(scratch / "c", scratch / "c2"));
  // Resharding is rejected if it would lose state or if the layout is impossible.
  const Outcome lossy = gantry_run("checkpoint reshard " + saved + " " + (scratch / "x") + " --set precision=float32");
  EXPECT_EQ(lossy.exit_code, 3);
  EXPECT_THAT(lossy.err, HasSubstr("as bfloat16, which would be float32 in this configuration"));
  const Outcome rounded =
      gantry_run("checkpoint reshard " + saved + " " + (scratch / "x") + " --set precision=float16");
  EXPECT_EQ(rounded.exit_code, 3);
  EXPECT_THAT(rounded.err, HasSubstr("as bfloat16, which would be float16 in this configuration"));
  const Outcome other = gantry_run("checkpoint reshard " + saved + " " + (scratch / "x") + " --set model.policy=llama");
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, HasSubstr("--set model.policy=llama: the checkpoint defines the model"));
  EXPECT_FALSE(fs::exists(scratch / "x"));
  EXPECT_EQ(gantry_run("checkpoint reshard " + saved + " " + (scratch / "x") + " --set parallel.tensor=3").exit_code,
            3);
  EXPECT_EQ(gantry_run("checkpoint reshard " + (scratch / "nothing") + " " + (scratch / "x")).exit_code, 5);
}

TEST(CheckpointProgram, ImportsAndExportsEveryFamilyToTheBit) {
  for (const char* family : {"gpt2", "llama", "bert"}) {
    SCOPED_TRACE(family);
    const ScratchFolder scratch;
    const Outcome imported = gantry_run("checkpoint import --json " + kGolden + family + " " + (scratch / "c") +
                                        " --set parallel.tensor=2 --set parallel.pipeline=2");
    ASSERT_EQ(imported.exit_code, 0) << imported.err;
    EXPECT_EQ(json::parse(imported.out)["to"], scratch / "c/step-000000");
    const Outcome exported = gantry_run("checkpoint export " + (scratch / "c") + " " + (scratch / "hf"));
    ASSERT_EQ(exported.exit_code, 0) << exported.err;
    EXPECT_TRUE(are_equal(kGolden + family + "/model.safetensors", scratch / "hf"));
    // Between a checkpoint and a model of Hugging Face's by the names and orientations of the latter.
    EXPECT_TRUE(are_equal(scratch / "c", kGolden + family));
    EXPECT_TRUE(are_equal(scratch / "hf", scratch / "c"));
    // Shards with an index hold the same; half precision is near and half as large.
    ASSERT_EQ(
        gantry_run("checkpoint export --shard-gb 0.00002 " + (scratch / "c") + " " + (scratch / "shards")).exit_code,
        0);
    EXPECT_TRUE(fs::exists(scratch / "shards/model.safetensors.index.json"));
    EXPECT_FALSE(fs::exists(scratch / "shards/model.safetensors"));
    EXPECT_TRUE(are_equal(scratch / "hf", scratch / "shards"));
    for (const char* dtype : {"bfloat16", "float16"}) {
      ASSERT_EQ(
          gantry_run(fmt::format("checkpoint export --dtype {0} {1} {2}/{0}", dtype, scratch / "c", scratch.path()))
              .exit_code,
          0);
      const auto diff =
          json::parse(gantry_run(fmt::format("checkpoint diff --json {0}/hf {0}/{1}", scratch.path(), dtype)).out);
      for (const auto& tensor : diff["tensors"]) EXPECT_LT(tensor["relative"], 0.005) << tensor;
      const auto mixed =
          json::parse(gantry_run(fmt::format("checkpoint diff --json {0}/c {0}/{1}", scratch.path(), dtype)).out);
      EXPECT_FALSE(mixed["equal"]);
      EXPECT_EQ(mixed["tensors"], diff["tensors"]) << "turned back, the same differences at the same places";
      const auto config = json::parse(read_file(fmt::format("{}/{}/config.json", scratch.path(), dtype)));
      EXPECT_EQ(config["torch_dtype"], dtype);
      EXPECT_EQ(config["dtype"], dtype) << "which newer versions of transformers prefer";
    }
  }
}

// Files that have each expert apart, and files that have all of them in one tensor.
TEST(CheckpointProgram, ImportsAndExportsExpertsToTheBit) {
  for (const char* family : {"families/mixtral", "families/gpt_oss", "families/deepseek_v3"}) {
    SCOPED_TRACE(family);
    const ScratchFolder scratch;
    const Outcome imported = gantry_run("checkpoint import " + kGolden + family + " " + (scratch / "c") +
                                        " --set parallel.tensor=3 --set parallel.pipeline=2");
    ASSERT_EQ(imported.exit_code, 0) << imported.err;
    const Outcome exported = gantry_run("checkpoint export " + (scratch / "c") + " " + (scratch / "hf"));
    ASSERT_EQ(exported.exit_code, 0) << exported.err;
    EXPECT_TRUE(are_equal(kGolden + family, scratch / "hf"));
    EXPECT_TRUE(are_equal(scratch / "c", kGolden + family));
  }
}

// A directory and a checkpoint of it become the same, which trains.
TEST(CheckpointProgram, UpcyclesADenseModel) {
  const ScratchFolder scratch;
  const std::string dense = kGolden + "families/mistral", flags = " --experts 4 --top-k 2 --granularity 2";
  ASSERT_EQ(gantry_run("checkpoint import " + dense + " " + (scratch / "c")).exit_code, 0);
  const Outcome upcycled = gantry_run("checkpoint upcycle --json " + dense + " " + (scratch / "a") + flags);
  ASSERT_EQ(upcycled.exit_code, 0) << upcycled.err;
  EXPECT_EQ(json::parse(upcycled.out)["to"], scratch / "a");
  ASSERT_EQ(gantry_run("checkpoint upcycle " + (scratch / "c") + " " + (scratch / "b") + flags).exit_code, 0);
  EXPECT_TRUE(are_equal(scratch / "a", scratch / "b"));
  const auto logits = [&](const std::string& model, const std::string& name) {
    const Outcome run = gantry_run("forward --model " + model + " --batch " + dense + "/inputs.safetensors --output " +
                                   (scratch / name) + " --set precision=float64");
    EXPECT_EQ(run.exit_code, 0) << run.err;
    return scratch / name;
  };
  const auto diff = json::parse(gantry_run("checkpoint diff --json " + logits(dense, "d.safetensors") + " " +
                                           logits(scratch / "a", "u.safetensors"))
                                    .out);
  for (const auto& tensor : diff["tensors"])
    if (tensor["name"] == "logits") EXPECT_LT(tensor["relative"], 1e-12) << tensor;
  const Outcome refused = gantry_run("checkpoint upcycle " + dense + " " + (scratch / "x") + " --experts 3 --top-k 4");
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("--top-k: the value is 4, but there are 3 experts"));
  fs::copy(dense, scratch / "own", fs::copy_options::recursive);
  const Outcome own = gantry_run("checkpoint upcycle " + (scratch / "own") + " " + (scratch / "own/") + flags);
  EXPECT_EQ(own.exit_code, 2);
  EXPECT_THAT(own.err, HasSubstr("the directory is read, and the result would overwrite it"));
  EXPECT_EQ(read_file(scratch / "own/config.json"), read_file(dense + "/config.json"));
}

TEST(CheckpointProgram, ImportsShardsAndHalfPrecisionToTheBit) {
  const ScratchFolder scratch;
  ASSERT_EQ(gantry_run("checkpoint import " + kGolden + "gpt2 " + (scratch / "c")).exit_code, 0);
  for (const char* dtype : {"float32", "bfloat16", "float16"})
    for (const char* shard_gb : {"5", "0.00002"}) {
      SCOPED_TRACE(fmt::format("{} {}", dtype, shard_gb));
      const std::string name = fmt::format("{}_{}", dtype, shard_gb), directory = scratch / name;
      ASSERT_EQ(gantry_run(fmt::format("checkpoint export --dtype {} --shard-gb {} {} {}", dtype, shard_gb,
                                       scratch / "c", directory))
                    .exit_code,
                0);
      const Outcome again =
          gantry_run(fmt::format("checkpoint import {} {}/c_{} --set precision={} --set parallel.tensor=2", directory,
                                 scratch.path(), name, dtype));
      ASSERT_EQ(again.exit_code, 0) << again.err;
      ASSERT_EQ(gantry_run(fmt::format("checkpoint export {0}/c_{1} {0}/{1}_again", scratch.path(), name)).exit_code,
                0);
      const std::string made = fmt::format("{}/{}_again", scratch.path(), name);
      EXPECT_TRUE(are_equal(directory, made));
      EXPECT_EQ(json::parse(read_file(made + "/config.json"))["torch_dtype"], dtype);
    }
}

TEST(CheckpointProgram, ExportRefusesWhatFloat16DoesNotHold) {
  const ScratchFolder scratch;
  fs::create_directories(scratch / "m");
  fs::copy(kGolden + "gpt2/config.json", scratch / "m/config.json");
  std::string bytes = read_file(kGolden + "gpt2/model.safetensors");
  std::uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof(header));
  const float large = 1e6F;
  std::memcpy(bytes.data() + sizeof(header) + header, &large, sizeof(large));
  scratch.write("m/model.safetensors", bytes);
  ASSERT_EQ(gantry_run("checkpoint import " + (scratch / "m") + " " + (scratch / "c")).exit_code, 0);
  const Outcome narrow = gantry_run("checkpoint export --dtype float16 " + (scratch / "c") + " " + (scratch / "x"));
  EXPECT_EQ(narrow.exit_code, 4) << narrow.err;
  EXPECT_THAT(narrow.err, HasSubstr("some values are infinite as float16"));
  EXPECT_FALSE(fs::exists(scratch / "x/model.safetensors"));
  EXPECT_EQ(gantry_run("checkpoint export --dtype bfloat16 " + (scratch / "c") + " " + (scratch / "y")).exit_code, 0);
}

TEST(CheckpointProgram, ExportGoesFromCheckpointsToPlacesOfItsOwn) {
  const ScratchFolder scratch;
  const std::string checkpoints = scratch / "c";
  ASSERT_EQ(gantry_run("checkpoint import " + kGolden + "gpt2 " + checkpoints).exit_code, 0);
  for (const std::string& place : {checkpoints, checkpoints + "/step-000000"}) {
    const Outcome run = gantry_run("checkpoint export " + checkpoints + " " + place);
    EXPECT_EQ(run.exit_code, 2) << run.err;
    EXPECT_THAT(run.err, HasSubstr("has checkpoints in it"));
  }
  const Outcome exported = gantry_run("checkpoint export " + kGolden + "gpt2 " + (scratch / "x"));
  EXPECT_EQ(exported.exit_code, 4) << exported.err;
  EXPECT_THAT(exported.err, HasSubstr("the model is already in Hugging Face format"));
  fs::create_directories(scratch / "p");
  scratch.write("p/pytorch_model_tp=0_pp=0.bin", "");
  const Outcome pickled = gantry_run("checkpoint export " + (scratch / "p") + " " + (scratch / "x"));
  EXPECT_EQ(pickled.exit_code, 4) << pickled.err;
  EXPECT_THAT(pickled.err, HasSubstr("has another form"));
}

TEST(CheckpointProgram, AnIndexThatIsWrongAboutItsShardsIsRefused) {
  const ScratchFolder scratch;
  ASSERT_EQ(gantry_run("checkpoint import " + kGolden + "gpt2 " + (scratch / "c")).exit_code, 0);
  ASSERT_EQ(gantry_run("checkpoint export --shard-gb 0.00002 " + (scratch / "c") + " " + (scratch / "m")).exit_code, 0);
  const json sound = json::parse(read_file(scratch / "m/model.safetensors.index.json"));
  const auto fault = [&](const json& index) {
    scratch.write("m/model.safetensors.index.json", index.dump());
    const Outcome run = gantry_run("checkpoint import " + (scratch / "m") + " " + (scratch / "again"));
    EXPECT_EQ(run.exit_code, 4) << run.err;
    return run.err;
  };
  // A tensor in another shard than its own, and one that no shard has.
  json moved = sound, more = sound;
  moved["weight_map"]["transformer.wte.weight"] = sound["weight_map"]["transformer.ln_f.bias"];
  ASSERT_NE(moved, sound);
  more["weight_map"]["transformer.h.9.ln_1.bias"] = sound["weight_map"]["transformer.ln_f.bias"];
  EXPECT_THAT(fault(moved), HasSubstr("has no tensor 'transformer.wte.weight', which the index lists"));
  EXPECT_THAT(fault(more), HasSubstr("has no tensor 'transformer.h.9.ln_1.bias', which the index lists"));
  // A shard that is missing.
  json other = sound;
  other["weight_map"]["transformer.wte.weight"] = "model-00009-of-00002.safetensors";
  EXPECT_THAT(fault(other), HasSubstr("model-00009-of-00002.safetensors"));
}

// A model directory as published: a tokenizer of 149 tokens, templates, defaults, a key that Gantry does not know.
std::map<std::string, std::string> write_published(const ScratchFolder& scratch) {
  fs::create_directories(scratch / "base/additional_chat_templates");
  fs::copy(kGolden + "llama/model.safetensors", scratch / "base/model.safetensors");
  json config = json::parse(read_file(kGolden + "llama/config.json"));
  config["transformers_version"] = "4.38.2";
  config["task_specific_params"] = {{"own", {1, 2}}};
  scratch.write("base/config.json", config.dump());
  std::map<std::string, std::string> others = {
      {"tokenizer.json", read_file(kGolden + "tokenizers/kinds/t5/tokenizer.json")},
      {"tokenizer_config.json", read_file(kGolden + "tokenizers/kinds/t5/tokenizer_config.json")},
      {"generation_config.json", R"({"eos_token_id": [1, 3], "max_new_tokens": 3})"},
      {"chat_template.jinja", "{{ messages }}"},
      {"additional_chat_templates/tool_use.jinja", "{{ tools }}"},
      {"README.md", "a model card"}};
  for (const auto& [name, text] : others) scratch.write("base/" + name, text);
  return others;
}

void expect_files(const std::string& directory, const std::map<std::string, std::string>& files) {
  for (const auto& [name, text] : files)
    EXPECT_TRUE(read_file(directory + "/" + name) == text) << directory << ": " << name;
}

TEST(CheckpointProgram, ExportsHaveAllFilesOfTheModelAlsoOnceItIsGone) {
  const ScratchFolder scratch;
  const auto others = write_published(scratch);
  const std::string base = scratch / "base", run = scratch / "run", imported = scratch / "imported";
  const std::string training = fmt::format(
      "model: {{path: {0}}}\ndata: {{format: tokens, path: {1}llama/tokens.bin, sequence_length: 8, "
      "batch_size: 2}}\ntrain: {{steps: 2}}\ncheckpoint: {{every: 1, keep: 1}}\n",
      base, kGolden);
  scratch.write("train.yaml", training);
  const auto done = [](const std::string& arguments) {
    const Outcome outcome = gantry_run(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << arguments << outcome.err;
    return outcome;
  };
  done("train " + (scratch / "train.yaml") + " --set checkpoint.path=" + run);
  done("train " + (scratch / "train.yaml") +
       " --set 'lora={r: 2, target_modules: [q_proj]}' --set checkpoint.path=" + (scratch / "lora"));
  done("checkpoint import " + base + " " + imported);
  done("checkpoint merge " + (scratch / "lora") + " " + (scratch / "merged"));
  fs::rename(base, scratch / "gone");
  done("checkpoint reshard " + run + " " + (scratch / "resharded") + " --set parallel.tensor=2");
  for (const char* from : {"run", "imported", "resharded", "lora"}) {
    done("checkpoint verify " + (scratch / from));
    done("checkpoint export " + (scratch / from) + " " + (scratch / from) + "_out");
    expect_files((scratch / from) + "_out", others);
  }
  expect_files(scratch / "merged", others);
  const json config = json::parse(read_file(scratch / "run_out/config.json"));
  EXPECT_EQ(config["task_specific_params"]["own"], json({1, 2}));
  EXPECT_EQ(config["transformers_version"], "4.38.2");
  const std::string prompt = " --prompt 'the quick' --json";
  for (const char* model : {"run_out", "merged", "run", "imported_out"}) {
    const json made = json::parse(done("generate --model " + (scratch / model) + prompt).out);
    EXPECT_LE(made["tokens"].size(), 3u) << model << made;  // max_new_tokens of generation_config.json
  }
}

TEST(CheckpointProgram, WhatIsNoModelIsNamed) {
  const ScratchFolder scratch;
  fs::create_directories(scratch / "m");
  fs::copy(kGolden + "gpt2/config.json", scratch / "m/config.json");
  const std::pair<std::string, const char*> files[] = {
      {"version https://git-lfs.github.com/spec/v1\n", "a Git LFS pointer"},
      {"<html></html>", "an HTML page"},
      {std::string("\x80\x02}q\0.", 6), "a pickle"}};
  for (const auto& [bytes, said] : files) {
    scratch.write("m/model.safetensors", bytes);
    const Outcome run = gantry_run("checkpoint import " + (scratch / "m") + " " + (scratch / "c"));
    EXPECT_EQ(run.exit_code, 4) << run.err;
    EXPECT_THAT(run.err, HasSubstr(said));
  }
}

}  // namespace
}  // namespace gantry::testing
