// `gantry checkpoint inspect, verify, diff`, and directories of save_parallelized, without LibTorch.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <nlohmann/json.hpp>

#include "gantry/checkpoint/format/catalog.h"
#include "gantry/checkpoint/format/checked_read.h"
#include "gantry/checkpoint/format/difference.h"
#include "gantry/checkpoint/format/find.h"
#include "gantry/checkpoint/format/parallelized.h"
#include "gantry/checkpoint/format/stored_form.h"
#include "gantry/core/error.h"
#include "program.h"
#include "thrown_by.h"
#include "tiny_checkpoint.h"

namespace gantry::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::StartsWith;

Outcome checkpoint(const std::string& arguments) { return run_program(gantry_program() + " checkpoint " + arguments); }

std::string file_with(const std::string& header, const std::string& data) {
  const std::uint64_t length = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + data;
}

std::string floats(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

// Root can read every directory, so a loop of symbolic links serves as an unreadable one.
TEST(CheckpointCommand, AFolderThatCannotBeReadIsAnErrorOfItsInput) {
  const ScratchFolder scratch;
  fs::create_symlink("loop", scratch / "loop");
  for (const char* command : {"inspect ", "verify "}) {
    const Outcome loop = checkpoint(command + (scratch / "loop"));
    EXPECT_EQ(loop.exit_code, 4) << loop.err;
    EXPECT_THAT(loop.err, HasSubstr("cannot be read: Too many levels of symbolic links"));
  }
}

TEST(CheckpointCommand, InspectShowsTheTreeAndWhereThingsLie) {
  const ScratchFolder scratch;
  const std::string folder = save_tiny(scratch / "c", 7);
  const Outcome text = checkpoint("inspect " + (scratch / "c"));
  ASSERT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr(folder));
  EXPECT_THAT(text.out, HasSubstr("step 7 of gpt2, saved by dp 1 x pp 1 x tp 4"));
  EXPECT_THAT(text.out, HasSubstr("bfloat16  [8, 3]"));
  EXPECT_THAT(text.out, HasSubstr("rank-00003.safetensors dim 0 6:8"));
  const Outcome short_text = checkpoint("inspect --depth 1 " + folder);
  EXPECT_THAT(short_text.out, HasSubstr("3 tensors"));
  EXPECT_EQ(short_text.out.find("bfloat16"), std::string::npos);
  const auto all = json::parse(checkpoint("inspect --json " + folder).out);
  EXPECT_EQ(all["step"], 7);
  EXPECT_EQ(all["layout"]["tp"], 4);
  EXPECT_EQ(all["tensors"].size(), 3u);
  EXPECT_EQ(all["tensors"][0]["slices"].size(), 4u);
  EXPECT_EQ(all["files"]["rank-00000.safetensors"]["hash"].get<std::string>().size(), 32u);
}

TEST(CheckpointCommand, VerifyFindsDamageAndExitsWithFive) {
  const ScratchFolder scratch;
  save_tiny(scratch / "c", 7);
  const std::string folder = save_tiny(scratch / "c", 9);
  const Outcome sound = checkpoint("verify " + (scratch / "c"));
  EXPECT_EQ(sound.exit_code, 0) << sound.err;
  EXPECT_THAT(sound.out, HasSubstr("step-000009: sound; 4 files"));
  run_program("printf X | dd of=" + folder + "/rank-00002.safetensors bs=1 seek=300 conv=notrunc");
  const Outcome damaged = checkpoint("verify --json " + folder + "/");
  EXPECT_EQ(damaged.exit_code, 5);
  EXPECT_THAT(damaged.err, HasSubstr("rank-00002.safetensors: the hash of the file is"));
  EXPECT_EQ(json::parse(damaged.out)["sound"], false);
  EXPECT_EQ(json::parse(damaged.out)["faults"].size(), 1u);
  run_program("truncate -s -1 " + folder + "/manifest.json");
  const Outcome manifest = checkpoint("verify " + folder);
  EXPECT_EQ(manifest.exit_code, 5);
  EXPECT_THAT(manifest.err, HasSubstr("manifest.json"));
  EXPECT_EQ(std::count(manifest.err.begin(), manifest.err.end(), '\n'), 1) << manifest.err;
  EXPECT_EQ(checkpoint("verify " + (scratch / "c")).exit_code, 0) << "the newest complete one is step 7";
  EXPECT_EQ(checkpoint("verify " + (scratch / "nothing")).exit_code, 5);
  EXPECT_EQ(checkpoint("verify " + (scratch / "c/step-000008")).exit_code, 5);
}

// A parent directory stands for its newest complete checkpoint. A warning names the newer ones that are
// damaged.
TEST(CheckpointCommand, DamagedNewestOnesAreNamed) {
  const ScratchFolder scratch;
  const std::string older = save_tiny(scratch / "c", 4), newer = save_tiny(scratch / "c", 6);
  run_program("truncate -s 10 " + newer + "/rank-00001.safetensors");
  for (const std::string command : {"verify", "inspect"}) {
    const Outcome run = run_program(gantry_program() + " checkpoint " + command + " " + (scratch / "c"));
    EXPECT_EQ(run.exit_code, 0) << run.err;
    EXPECT_THAT(run.out, HasSubstr(older));
    EXPECT_THAT(run.err,
                StartsWith("warning: a checkpoint was passed over: " + newer + "/rank-00001.safetensors has 10 bytes"));
  }
}

TEST(CheckpointCommand, AFolderIsNamedByTheStepItHolds) {
  const ScratchFolder scratch;
  const std::string folder = save_tiny(scratch / "c", 4);
  run_program("cp -r " + folder + " " + (scratch / "c/step-000099") + "; cp -r " + folder + " " + (scratch / "best"));
  const Outcome parent = run_program(gantry_program() + " checkpoint verify " + (scratch / "c"));
  EXPECT_EQ(parent.out.find(folder + ": sound"), 0u) << parent.out;
  EXPECT_THAT(parent.err, HasSubstr("step-000099 contains step 4"));
  EXPECT_EQ(run_program(gantry_program() + " checkpoint verify " + (scratch / "best")).exit_code, 0);
}

// Training programs leave a config.json next to their checkpoints. The directory counts as a model only if it
// also has weights.
TEST(CheckpointCommand, AConfigWithCheckpointsIsNoModel) {
  const ScratchFolder scratch;
  const std::string folder = save_tiny(scratch / "c", 4);
  scratch.write("c/config.json", "{}");
  EXPECT_EQ(stored_form(scratch / "c"), StoredForm::kCheckpoint);
  EXPECT_THAT(checkpoint("inspect " + (scratch / "c")).out, HasSubstr(folder));
  scratch.write("c/pytorch_model-00001-of-00002.bin", "");
  EXPECT_EQ(stored_form(scratch / "c"), StoredForm::kHuggingFace);
  EXPECT_EQ(stored_form(folder), StoredForm::kCheckpoint);
  EXPECT_EQ(stored_form(scratch / "nothing"), StoredForm::kCheckpoint);
  fs::create_directories(scratch / "m");
  scratch.write("m/config.json", "{}");
  EXPECT_EQ(stored_form(scratch / "m"), StoredForm::kHuggingFace);
  EXPECT_EQ(stored_form(scratch / "m/config.json"), StoredForm::kFile);
}

TEST(CheckpointCommand, DiffNamesTheLargestDifferenceFirst) {
  const ScratchFolder scratch;
  const std::string a = save_tiny(scratch / "a", 1), b = save_tiny(scratch / "b", 1, 3);
  EXPECT_THAT(checkpoint("diff " + a + " " + a).out, HasSubstr("3 tensors, 0 differ"));
  const auto all = json::parse(checkpoint("diff --json " + a + " " + b).out);
  EXPECT_EQ(all["equal"], false);
  ASSERT_EQ(all["tensors"].size(), 3u);
  const std::string header = R"({"same":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                             R"("w":{"dtype":"F32","shape":[2,2],"data_offsets":[8,24]}})";
  const std::string x = scratch.write("x.safetensors", file_with(header, floats({1, 2, 1, 2, 3, 4})));
  const std::string y = scratch.write("y.safetensors", file_with(header, floats({1, 2, 1, 2, 3.5, 4})));
  const auto values = json::parse(checkpoint("diff --json " + x + " " + y).out);
  const auto& worst = values["tensors"][0];
  EXPECT_EQ(worst["name"], "w");
  EXPECT_EQ(worst["largest"], 0.5);
  EXPECT_EQ(worst["relative"], 0.125);
  EXPECT_EQ(worst["at"], json({1, 0}));
  EXPECT_EQ(worst["different"], 1);
  EXPECT_EQ(values["tensors"][1]["different"], 0);
  const std::string other = R"({"w":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})";
  const Outcome shapes =
      checkpoint("diff " + x + " " + scratch.write("z.safetensors", file_with(other, floats({1, 2, 3, 4}))));
  EXPECT_THAT(shapes.out, HasSubstr("same"));
  EXPECT_THAT(shapes.out, HasSubstr("is missing in"));
  EXPECT_THAT(shapes.out, HasSubstr("the shapes are [2, 2] and [4]"));
}

TEST(CheckpointCommand, NotANumberEqualsItselfAlone) {
  const ScratchFolder scratch;
  const std::string header = R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  const float nan = std::numeric_limits<float>::quiet_NaN();
  TensorCatalog a = TensorCatalog::open(scratch.write("a", file_with(header, floats({nan, 1}))));
  TensorCatalog b = TensorCatalog::open(scratch.write("b", file_with(header, floats({-nan, 1}))));
  TensorCatalog c = TensorCatalog::open(scratch.write("c", file_with(header, floats({0, 1}))));
  EXPECT_EQ(compare_tensors(a, b)[0].different, 0u);
  EXPECT_EQ(compare_tensors(a, c)[0].different, 1u);
  EXPECT_TRUE(std::isinf(compare_tensors(a, c)[0].largest));
}

// Integers that are equal after conversion to double.
TEST(CheckpointCommand, LargeWholeNumbersAreComparedExactly) {
  const ScratchFolder scratch;
  const auto open = [&](const char* name, const char* type, const auto& values) {
    const std::string header = fmt::format(R"({{"w":{{"dtype":"{}","shape":[2],"data_offsets":[0,16]}}}})", type);
    const std::string bytes(reinterpret_cast<const char*>(values.data()), 16);
    return TensorCatalog::open(scratch.write(name, file_with(header, bytes)));
  };
  constexpr std::int64_t kEdge = std::int64_t{1} << 53;
  TensorCatalog a = open("a", "I64", std::array<std::int64_t, 2>{-7, kEdge});
  TensorCatalog b = open("b", "I64", std::array<std::int64_t, 2>{-7, kEdge + 1});
  TensorCatalog f = open("f", "F64", std::array<double, 2>{-7, 0x1p53});
  TensorCatalog u = open("u", "U64", std::array<std::uint64_t, 2>{~std::uint64_t{0}, 1});
  TensorCatalog v = open("v", "U64", std::array<std::uint64_t, 2>{~std::uint64_t{0} - 1, 1});
  EXPECT_EQ(compare_tensors(a, f)[0].different, 0u);
  for (const auto& difference : {compare_tensors(a, b)[0], compare_tensors(f, b)[0], compare_tensors(u, v)[0]}) {
    EXPECT_EQ(difference.different, 1u);
    EXPECT_EQ(difference.largest, 1);
  }
  EXPECT_EQ(compare_tensors(a, b)[0].at, (std::vector<std::int64_t>{1}));
}

TEST(CheckpointCommand, OtherKindsOfFilesAreNamed) {
  const ScratchFolder scratch;
  const std::pair<std::string, const char*> files[] = {
      {"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "a Git LFS pointer"},
      {"<!DOCTYPE html><html><body>404</body></html>", "an HTML page"},
      {std::string("\x80\x02}q\0.", 6), "a pickle"},
      {std::string("PK\x03\x04\x14\0", 6) + std::string(40, '\0'), "the zip file has no directory at its end"},
      {"GGUF" + std::string(40, '\0'), "a GGUF file"}};
  for (const auto& [bytes, said] : files) {
    const Outcome run = checkpoint("inspect " + scratch.write("model.safetensors", bytes));
    EXPECT_EQ(run.exit_code, 4) << run.err;
    EXPECT_THAT(run.err, HasSubstr(said));
    EXPECT_EQ(checkpoint("inspect " + scratch.path()).exit_code, 4) << "as a model's directory";
  }
  fs::remove(scratch / "model.safetensors");
  scratch.write("config.json", "{}");
  scratch.write("pytorch_model.bin", std::string("\x80\x02}q\0.", 6));
  const Outcome pickled = checkpoint("inspect " + scratch.path());
  EXPECT_EQ(pickled.exit_code, 4);
  EXPECT_THAT(pickled.err, HasSubstr("it looks like a pickle"));
  fs::rename(scratch / "pytorch_model.bin", scratch / "pytorch_model_tp_0_pp_0.bin");  // OSLO's own
  EXPECT_THAT(checkpoint("inspect " + scratch.path()).err,
              HasSubstr("its pytorch_model_tp_0_pp_0.bin has another form"));
}

// A checkpoint in which a Git LFS pointer replaces a large file.
TEST(CheckpointCommand, WhatARanksFileLooksLikeIsSaid) {
  const ScratchFolder scratch;
  const std::string folder = save_tiny(scratch / "c", 7), file = "c/step-000007/rank-00002.safetensors";
  const std::string other = save_tiny(scratch / "d", 7);
  const std::size_t size = fs::file_size(scratch / file);
  std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", padded = pointer;
  padded.resize(size, ' ');
  for (const std::string& bytes : {pointer, padded}) {  // the second one has the right size
    scratch.write(file, bytes);
    for (const std::string& command : {"verify " + folder, "diff " + folder + " " + other}) {
      const Outcome run = checkpoint(command);
      EXPECT_EQ(run.exit_code, 5) << run.err;
      EXPECT_THAT(run.err, HasSubstr("rank-00002.safetensors"));
      EXPECT_THAT(run.err, HasSubstr("it looks like a Git LFS pointer")) << command;
    }
    std::vector<unsigned char> rest(8);
    try {
      read_checked(folder, "rank-00002.safetensors", read_manifest(folder).files.at("rank-00002.safetensors"),
                   {{0, 8, rest.data()}});
      ADD_FAILURE();
    } catch (const CheckpointError& error) {
      EXPECT_THAT(error.what(), HasSubstr("it looks like a Git LFS pointer"));
    }
  }
  scratch.write(file, pointer);
  EXPECT_THAT(completeness_fault(folder), HasSubstr("it looks like a Git LFS pointer"));
}

std::string parallelized_file(const ScratchFolder& scratch, int tensor, const std::string& save,
                              const std::vector<Range>& ranges) {
  const ManifestTensor entry{
      "", "w", find_stored_type("F32"), {4}, {{parallelized_file_name(tensor, 0), {{.dim = 0, .ranges = ranges}}}}};
  const auto shape = entry.slice_of(entry.slices.front()).shape;
  const std::string header =
      make_safetensors_header({{"w", entry.type, shape}}, parallelized_metadata({2, 1}, save, {entry}));
  std::vector<float> values;
  for (const Range& range : ranges)
    for (auto i = range.begin; i < range.end; ++i) values.push_back(static_cast<float>(i));
  return scratch.write(parallelized_file_name(tensor, 0), header + floats(values));
}

std::string parallelized_fault(const ScratchFolder& scratch) {
  return thrown_by<InputError>([&] { read_parallelized(scratch.path()); });
}

TEST(Parallelized, SharedElementsAreFineAndHolesAreNot) {
  const ScratchFolder scratch;
  parallelized_file(scratch, 0, "1", {{0, 3}});
  EXPECT_THAT(parallelized_fault(scratch), HasSubstr("lacks model_tp_1_pp_0.safetensors"));
  parallelized_file(scratch, 1, "1", {{2, 4}});
  TensorCatalog catalog = TensorCatalog::open(scratch.path());
  const auto bytes = catalog.read("w");
  EXPECT_EQ(std::memcmp(bytes.data(), floats({0, 1, 2, 3}).data(), bytes.size()), 0);
  parallelized_file(scratch, 1, "2", {{2, 4}});
  EXPECT_THAT(parallelized_fault(scratch), HasSubstr("from another save"));
  parallelized_file(scratch, 0, "2", {{0, 1}});
  EXPECT_THAT(parallelized_fault(scratch), HasSubstr("'w' is incomplete"));
  scratch.write(parallelized_file_name(1, 0), make_safetensors_header({}, {{"format", "pt"}}));
  EXPECT_THAT(parallelized_fault(scratch), HasSubstr("in its metadata"));
}

TEST(Parallelized, WhicheverFileIsMissingAllAreListed) {
  const ScratchFolder scratch;
  EXPECT_THAT(parallelized_fault(scratch), HasSubstr("has no model_tp_0_pp_0.safetensors"));
  parallelized_file(scratch, 1, "1", {{2, 4}});
  EXPECT_THAT(parallelized_fault(scratch),
              HasSubstr("lacks model_tp_0_pp_0.safetensors; expected all of model_tp_0_pp_0.safetensors, "
                        "model_tp_1_pp_0.safetensors"));
  const Outcome run = checkpoint("inspect " + scratch.path());
  EXPECT_EQ(run.exit_code, 4) << run.err;
  EXPECT_THAT(run.err, HasSubstr("lacks model_tp_0_pp_0.safetensors"));
}

// The reader allocates nothing for the number of files that a malicious header states.
TEST(Parallelized, SizesBeyondAllReasonAreRefused) {
  const ScratchFolder scratch;
  for (const auto& [tensor, pipeline] : {std::pair{1 << 20, 1 << 20}, {1 << 16, 1 << 16}, {1 << 16, 2}, {3, 1 << 20}}) {
    scratch.write(parallelized_file_name(0, 0),
                  make_safetensors_header({}, parallelized_metadata({tensor, pipeline}, "1", {})));
    EXPECT_THAT(parallelized_fault(scratch), HasSubstr("model_tp_0_pp_0.safetensors: ")) << tensor << " " << pipeline;
    EXPECT_LT(parallelized_fault(scratch).size(), 300u);
  }
}

}  // namespace
}  // namespace gantry::testing
