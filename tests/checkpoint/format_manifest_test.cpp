// Manifests, completeness of checkpoints, shard indexes, and detection of damage.
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <random>

#include "gantry/checkpoint/format/catalog.h"
#include "gantry/checkpoint/format/files.h"
#include "gantry/checkpoint/format/find.h"
#include "gantry/checkpoint/format/manifest.h"
#include "gantry/checkpoint/format/model_files.h"
#include "gantry/checkpoint/format/open_files.h"
#include "gantry/checkpoint/format/safetensors_header.h"
#include "gantry/checkpoint/format/tiling.h"
#include "gantry/core/error.h"
#include "program.h"
#include "thrown_by.h"

namespace gantry::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

ManifestTensor tensor_with(const std::vector<std::vector<AppliedShard>>& slices) {
  ManifestTensor tensor{"model", "w", find_stored_type("F32"), {10, 3}, {}};
  for (const auto& shards : slices) tensor.slices.push_back({"a.safetensors", shards});
  return tensor;
}

ManifestTensor tensor_of(const std::vector<std::vector<Range>>& slices) {
  std::vector<std::vector<AppliedShard>> shards;
  for (const auto& ranges : slices) shards.push_back({{.dim = 0, .ranges = ranges}});
  return tensor_with(shards);
}

TEST(FormatManifest, SlicesTileTheirTensorExactly) {
  const auto fault = [](const ManifestTensor& tensor) {
    return thrown_by<CheckpointError>([&] { check_tiling(tensor); });
  };
  EXPECT_EQ(fault(tensor_with({{}})), "no error");
  EXPECT_EQ(fault(tensor_of({{{4, 10}}, {{0, 4}}})), "no error");
  EXPECT_EQ(fault(tensor_of({{{0, 2}, {5, 7}}, {{2, 5}, {7, 10}}})), "no error");
  EXPECT_EQ(fault(tensor_of({{{0, 10}}, {{3, 3}}})), "no error");
  EXPECT_NE(fault(tensor_of({})).find("no slice"), std::string::npos);
  EXPECT_NE(fault(tensor_of({{{0, 4}}, {{5, 10}}})).find("leave a hole at 4"), std::string::npos);
  EXPECT_NE(fault(tensor_of({{{0, 5}}, {{4, 10}}})).find("overlap at 5"), std::string::npos);
  EXPECT_NE(fault(tensor_of({{{0, 9}}})).find("cover 9 of 10"), std::string::npos);
  EXPECT_NE(fault(tensor_with({{}, {}})).find("overlap"), std::string::npos);
  const AppliedShard all{.dim = 0, .ranges = {{0, 10}}}, first{.dim = 1, .ranges = {{0, 2}}},
      rest{.dim = 1, .ranges = {{2, 3}}};
  EXPECT_EQ(fault(tensor_with({{first}, {rest}})), "no error");
  EXPECT_NE(fault(tensor_with({{all}, {first}})).find("overlap"), std::string::npos);
  EXPECT_NE(fault(tensor_with({{all, first}})).find("leave a hole"), std::string::npos);
}

// Slices with several shards in order: columns, and then single elements or rows of the local tensor.
TEST(FormatManifest, SlicesOfOrderedShardsTileTheirTensorExactly) {
  const auto fault = [](const ManifestTensor& tensor) {
    return thrown_by<CheckpointError>([&] { check_tiling(tensor); });
  };
  const AppliedShard left{.dim = 1, .ranges = {{0, 2}}}, right{.dim = 1, .ranges = {{2, 3}}};
  const auto elements = [](std::int64_t begin, std::int64_t end) {
    return AppliedShard{.dim = 0, .row = 1, .ranges = {{begin, end}}};
  };
  EXPECT_EQ(fault(tensor_with({{left, elements(0, 7)}, {left, elements(7, 20)}, {right}})), "no error");
  EXPECT_EQ(fault(tensor_with({{left, elements(0, 7)}, {left, elements(7, 20)}, {right, elements(0, 10)}})),
            "no error");
  EXPECT_NE(fault(tensor_with({{left, elements(0, 7)}, {left, elements(8, 20)}, {right}})).find("hole"),
            std::string::npos);
  EXPECT_NE(fault(tensor_with({{left, elements(0, 8)}, {left, elements(7, 20)}, {right}})).find("overlap"),
            std::string::npos);
  EXPECT_EQ(
      fault(tensor_with({{{.dim = 0, .row = 3, .ranges = {{0, 4}}}}, {{.dim = 0, .row = 3, .ranges = {{4, 10}}}}})),
      "no error");
}

json sound_manifest() {
  return json::parse(R"({"format_version": 3, "step": 3, "policy": "gpt2", "model_config": {}, "config": "",
    "layout": {"tp": 2}, "threads_per_rank": 1, "numbers": {}, "progress": {}, "user": {"epoch": 4},
    "files": {"a.safetensors": {"hash": "0123456789abcdef0123456789abcdef", "size": 128}},
    "tensors": [{"kind": "model", "name": "w", "dtype": "float32", "shape": [4, 2],
                 "slices": [{"file": "a.safetensors", "cuts": [{"dim": 0, "ranges": [[0, 4]]}]}]}]})");
}

// Adds the correct hash, as a malicious writer would.
std::string sealed(const json& all) {
  const std::string body = all.dump().substr(1);
  return "{\"hash\": \"" + hash_of(body) + "\"," + body;
}

TEST(FormatManifest, ComesBackAsItWasWritten) {
  const Manifest manifest = parse_manifest(sealed(sound_manifest()), "m");
  const Manifest again = parse_manifest(manifest_text(manifest), "m");
  EXPECT_EQ(manifest_text(manifest), manifest_text(again));
  EXPECT_EQ(again.user["epoch"], 4);
  EXPECT_EQ(again.layout.at("tp"), 2);
  EXPECT_EQ(again.tensors.at("model/w").slices[0].shards.at(0).ranges[0], (Range{0, 4}));
}

// Version 2 states a dim and its ranges, or -1.
TEST(FormatManifest, SlicesOfTheFormerVersionAreRead) {
  json all = sound_manifest();
  all["format_version"] = 2;
  all["tensors"][0]["slices"] = {{{"file", "a.safetensors"}, {"dim", 0}, {"ranges", {{0, 4}}}}};
  const Manifest manifest = parse_manifest(sealed(all), "m");
  EXPECT_EQ(manifest_text(manifest), manifest_text(parse_manifest(sealed(sound_manifest()), "m")));
  all["tensors"][0]["slices"] = {{{"file", "a.safetensors"}, {"dim", -1}, {"ranges", json::array()}}};
  EXPECT_TRUE(parse_manifest(sealed(all), "m").tensors.at("model/w").slices[0].shards.empty());
}

TEST(FormatManifest, HostileOnesAreRefused) {
  const std::tuple<const char*, const char*, const char*> changes[] = {
      {"/format_version", "1", "format version 1"},
      {"/format_version", "4", "format version 4"},
      {"/format_version", "\"3\"", "format version"},
      {"/step", "-1", "'step' is not a count"},
      {"/step", "1.5", "'step' is not a count"},
      {"/policy", "7", "'policy' is not a string"},
      {"/files", "[]", "'files' is not an object"},
      {"/files/a.safetensors/size", "-1", "'size' is not a count"},
      {"/files/a.safetensors/hash", "\"00\"", "the wrong length"},
      {"/files", "{}", "which has no hash"},
      {"/tensors/0/dtype", "\"float31\"", "unknown dtype 'float31'"},
      {"/tensors/0/shape", "[4, -2]", "has the shape"},
      {"/tensors/0/shape", "[4611686018427387904, 4]", "overflows"},
      {"/tensors/0/shape", "[5, 2]", "cover 4 of 5"},
      {"/tensors/0/slices", "[]", "no slice"},
      {"/tensors/0/slices/0/cuts/0/dim", "2", "along dim 2"},
      {"/tensors/0/slices/0/cuts/0/dim", "-2", "along dim -2"},
      {"/tensors/0/slices/0/cuts/0/row", "3", "in rows of 3"},
      {"/tensors/0/slices/0/cuts/0/row", "0", "in rows of 0"},
      {"/tensors/0/slices/0/cuts/0", "null", "'dim' is missing"},
      {"/tensors/0/slices/0/cuts", "{}", "'cuts' is not a list"},
      {"/tensors/0/slices/0/cuts/0/ranges", "[[0, 5]]", "within 0 to 4"},
      {"/tensors/0/slices/0/cuts/0/ranges", "[[3, 1]]", "within 0 to 4"},
      {"/tensors/0/slices/0/cuts/0/ranges", "[[0]]", "a range is [0]"},
      {"/tensors/0/slices/0/cuts/0/ranges", "[[-4, 4]]", "a range is [-4,4]"},
      {"/tensors/0/slices/0/file", "\"../a.safetensors\"", "a file of its directory"},
      {"/tensors/0/slices/0/file", "\"/etc/passwd\"", "a file of its directory"},
      {"/tensors/0/slices/0/file", "\".hidden\"", "a file of its directory"},
      {"/tensors/0/slices/0/file", "3", "'file' is not a string"},
      {"/tensors/0", "null", "'dtype' is missing"},
  };
  for (const auto& [place, value, said] : changes) {
    json all = sound_manifest();
    all[json::json_pointer(place)] = json::parse(value);
    const std::string fault = thrown_by<CheckpointError>([&] { parse_manifest(sealed(all), "m"); });
    EXPECT_NE(fault.find(said), std::string::npos) << place << " " << value << ": " << fault;
  }
  json twice = sound_manifest();
  twice["tensors"].push_back(twice["tensors"][0]);
  EXPECT_NE(thrown_by<CheckpointError>([&] { parse_manifest(sealed(twice), "m"); }).find("is listed twice"),
            std::string::npos);
  json without = sound_manifest();
  without.erase("numbers");
  EXPECT_NE(thrown_by<CheckpointError>([&] { parse_manifest(sealed(without), "m"); }).find("'numbers' is missing"),
            std::string::npos);
}

TEST(FormatManifest, OtherFilesAreSaidForWhatTheyLookLike) {
  for (const auto& [text, said] : {std::pair<std::string, const char*>{"", "does not begin with its hash"},
                                   {"{}", "does not begin with its hash"},
                                   {"version https://git-lfs.github.com/spec/v1", "Git LFS pointer"},
                                   {"<!DOCTYPE html>", "HTML page"}})
    EXPECT_NE(thrown_by<CheckpointError>([&] { parse_manifest(text, "m"); }).find(said), std::string::npos) << text;
}

TEST(FormatManifest, EveryFlippedBitAndTruncationIsFound) {
  const std::string text = sealed(sound_manifest());
  for (std::size_t bit = 0; bit < 8 * text.size(); ++bit) {
    std::string flipped = text;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_THROW(parse_manifest(flipped, "m"), CheckpointError) << bit;
  }
  for (std::size_t length = 0; length < text.size(); ++length)
    EXPECT_THROW(parse_manifest(text.substr(0, length), "m"), CheckpointError) << length;
}

// Changes values at random places and corrects the hash. The parser must accept the manifest or throw
// CheckpointError.
TEST(FormatManifest, RandomChangesAreReadOrRefused) {
  const std::string sound = sound_manifest().dump();
  const std::string pieces[] = {"{",     "}",      "[", "]", "\"", ",", "-1", "null", "99999999999999999999",
                                "[0,9]", "\\u0000"};
  std::mt19937_64 random(3);
  int refused = 0;
  constexpr int kRuns = 20000;
  for (int run = 0; run < kRuns; ++run) {
    std::string text = sound;
    const auto& piece = pieces[random() % std::size(pieces)];
    const std::size_t at = 1 + random() % (text.size() - 1);
    if (random() % 2)
      text.replace(at, random() % 4, piece);
    else
      text[at] = static_cast<char>(random() % 128);
    const std::string body = text.substr(1);
    try {
      parse_manifest("{\"hash\": \"" + hash_of(body) + "\"," + body, "m");
    } catch (const CheckpointError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, kRuns / 2);
  EXPECT_LT(refused, kRuns);
}

TEST(FormatManifest, AHugeOneIsRefusedBeforeItIsRead) {
  const ScratchFolder scratch;
  scratch.write("manifest.json", "{");
  fs::resize_file(scratch / "manifest.json", (std::uintmax_t{1} << 28) + 1);  // a sparse file
  EXPECT_NE(thrown_by<CheckpointError>([&] { read_manifest(scratch.path()); }).find("at most 268435456"),
            std::string::npos);
}

// The manifest states a tensor of one tebibyte, which the file does not contain.
TEST(FormatManifest, WhatItClaimsIsComparedBeforeMemoryIsAskedFor) {
  const ScratchFolder scratch;
  const std::string header = make_safetensors_header({{"model/w", find_stored_type("F32"), {4, 2}}}, {});
  const std::string file = header + std::string(32, 'x');
  json all = sound_manifest();
  all["files"]["a.safetensors"] = {{"hash", hash_of(file)}, {"size", file.size()}};
  scratch.write("a.safetensors", file);
  scratch.write("manifest.json", sealed(all));
  EXPECT_EQ(TensorCatalog::open(scratch.path()).read("model/w").size(), 32u);
  all["tensors"][0]["shape"] = {std::int64_t{1} << 38, 1};
  all["tensors"][0]["slices"][0]["cuts"][0]["ranges"] = {{0, std::int64_t{1} << 38}};
  scratch.write("manifest.json", sealed(all));
  EXPECT_NE(thrown_by<CheckpointError>([&] {
              TensorCatalog::open(scratch.path()).read("model/w");
            }).find("is float32 [4, 2]; expected float32 [274877906944, 1]"),
            std::string::npos);
}

// A process can have about 65,530 mappings, and a checkpoint has one file per rank.
TEST(OpenFiles, CloseTheOneThatWasUsedLongestAgo) {
  OpenFiles<int> files;
  int opened = 0;
  const auto get = [&](int number) {
    return files.get(std::to_string(number), [&] {
      ++opened;
      return std::make_unique<int>(number);
    });
  };
  const int most = static_cast<int>(OpenFiles<int>::kMost);
  for (int number = 0; number < 3 * most; ++number) {
    EXPECT_EQ(get(number), number);
    get(0);
  }
  EXPECT_EQ(files.size(), OpenFiles<int>::kMost);
  EXPECT_EQ(opened, 3 * most) << "number 0 stays open";
  get(1);
  EXPECT_EQ(opened, 3 * most + 1);
}

// Writes a directory with a sealed manifest and its only file, of `size` bytes.
void write_checkpoint(const std::string& folder, std::size_t size = 128) {
  fs::create_directories(folder);
  json manifest = sound_manifest();
  if (const auto step = step_of_folder_name(fs::path(folder).filename())) manifest["step"] = *step;
  std::ofstream(folder + "/manifest.json") << sealed(manifest);
  std::ofstream(folder + "/a.safetensors") << std::string(size, 'x');
}

TEST(FormatFind, TakesTheNewestCompleteOneAndSaysWhyOthersWerePassedOver) {
  const ScratchFolder scratch;
  EXPECT_FALSE(find_newest_checkpoint(scratch / "none").folder);
  write_checkpoint(scratch / "step-000009");
  write_checkpoint(scratch / "step-000010");
  write_checkpoint(scratch / "step-000011", 127);
  write_checkpoint(scratch / "step-1000000");
  fs::remove(scratch / "step-1000000/a.safetensors");
  fs::create_directories(scratch / "step-000012");
  write_checkpoint(scratch / ".step-000013.partial");
  write_checkpoint(scratch / "step-x");
  std::ofstream(scratch / "step-000014") << "a file";
  const auto found = find_newest_checkpoint(scratch.path());
  EXPECT_EQ(found.folder, scratch / "step-000010");
  ASSERT_EQ(found.passed_over.size(), 3u);
  EXPECT_NE(found.passed_over[0].fault.find("a.safetensors is missing"), std::string::npos);
  EXPECT_NE(found.passed_over[1].fault.find("has no manifest.json"), std::string::npos);
  EXPECT_NE(found.passed_over[2].fault.find("has 127 bytes instead of 128"), std::string::npos);
  EXPECT_EQ(require_checkpoint(scratch.path()), scratch / "step-000010");
  EXPECT_EQ(require_checkpoint(scratch / "step-000009"), scratch / "step-000009");
  EXPECT_THROW(require_checkpoint(scratch / "step-000012"), CheckpointError);
  EXPECT_THROW(require_checkpoint(scratch / "step-000011"), CheckpointError);
  EXPECT_THROW(require_checkpoint(scratch / "none"), CheckpointError);
}

// Root can read every directory, so a loop of symbolic links serves as an unreadable one.
TEST(FormatFind, AFolderThatCannotBeReadIsNotAnEmptyOne) {
  const ScratchFolder scratch;
  fs::create_symlink("loop", scratch / "loop");
  EXPECT_THROW(find_newest_checkpoint(scratch / "loop"), InputError);
  EXPECT_THROW(require_checkpoint(scratch / "loop"), InputError);
}

std::string index_fault(const std::string& index) {
  const ScratchFolder scratch;
  scratch.write("model.safetensors.index.json", index);
  scratch.write("one.safetensors", "x");
  return thrown_by<InputError>([&] { find_model_files(scratch.path()); });
}

TEST(FormatModelFiles, TheTypeOfTheWeightsIsUnderBothKeys) {
  for (const char* source :
       {R"({"n_embd": 4})", R"({"n_embd": 4, "dtype": "float32"})", R"({"n_embd": 4, "torch_dtype": "float32"})",
        R"({"n_embd": 4, "dtype": "float32", "torch_dtype": "float16"})"}) {
    json config = json::parse(source);
    set_weight_type(config, "bfloat16");
    EXPECT_EQ(config, json::parse(R"({"n_embd": 4, "torch_dtype": "bfloat16", "dtype": "bfloat16"})")) << source;
  }
}

TEST(FormatModelFiles, IndexesAreReadStrictly) {
  EXPECT_EQ(index_fault(R"({"weight_map": {"a": "one.safetensors", "b": "one.safetensors"}})"), "no error");
  EXPECT_NE(index_fault(R"({"weight_map": {"a": "one.safetensors", "b": "two.safetensors", "c": "3.safetensors"}})")
                .find("2 of 3 shards are missing: 3.safetensors, two.safetensors"),
            std::string::npos);
  for (const char* hostile : {R"("../one.safetensors")", R"("/one.safetensors")", R"("a/../../one.safetensors")",
                              R"("..")", R"("")", R"("a\\b")", "3", "null", R"(["one.safetensors"])"})
    EXPECT_NE(index_fault(std::string(R"({"weight_map": {"a": )") + hostile + "}}").find("it lists the file"),
              std::string::npos)
        << hostile;
  EXPECT_NE(index_fault("{}").find("no weight_map"), std::string::npos);
  EXPECT_NE(index_fault(R"({"weight_map": []})").find("no weight_map"), std::string::npos);
  EXPECT_NE(index_fault("[]").find("not a JSON object"), std::string::npos);
  EXPECT_NE(index_fault(std::string("{\"weight_map\": {}}\0more", 23)).find("not JSON at byte 19"), std::string::npos);
  EXPECT_NE(index_fault("version https://git-lfs.github.com/spec/v1").find("Git LFS pointer"), std::string::npos);
  EXPECT_NE(
      index_fault(R"({"weight_map": {"a": "one.safetensors", "a": "one.safetensors"}})").find("'a' appears twice"),
      std::string::npos);
}

TEST(FormatModelFiles, DirectoriesWithoutSafetensorsSayWhatToDo) {
  const ScratchFolder scratch;
  EXPECT_NE(thrown_by<InputError>([&] { find_model_files(scratch.path()); }).find("has neither"), std::string::npos);
  scratch.write("pytorch_model_tp_0_pp_0.bin", "x");
  EXPECT_NE(thrown_by<InputError>([&] { find_model_files(scratch.path()); }).find("has another form"),
            std::string::npos);
  scratch.write("pytorch_model.bin.index.json", R"({"weight_map": {"a": "pytorch_model-00001-of-00002.bin"}})");
  EXPECT_NE(thrown_by<InputError>([&] {
              find_model_files(scratch.path());
            }).find("1 of 1 shards are missing: pytorch_model-00001-of-00002.bin"),
            std::string::npos);
  scratch.write("pytorch_model.bin", "x");
  EXPECT_EQ(find_model_files(scratch.path()).paths, std::vector<std::string>{scratch / "pytorch_model.bin"});
  scratch.write("model.safetensors", "x");
  EXPECT_EQ(find_model_files(scratch.path()).paths, std::vector<std::string>{scratch / "model.safetensors"});
  EXPECT_NE(thrown_by<InputError>([&] { find_model_files(scratch / "none"); }).find("not a directory"),
            std::string::npos);
}

}  // namespace
}  // namespace gantry::testing
