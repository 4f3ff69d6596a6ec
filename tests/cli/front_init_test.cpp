// `gantry init`: its files and its errors; the build options; LibTorch in another directory, or no LibTorch.
#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "gantry/models/described/decoder_family.h"
#include "program.h"

namespace gantry::testing {
namespace {

namespace fs = std::filesystem;

Outcome init(const ScratchFolder& scratch, const std::string& arguments) {
  return run_program(fmt::format("cd {} && {} init {}", scratch.path(), gantry_program(), arguments));
}

TEST(Init, WritesAProjectWhoseConfigurationLoads) {
  const ScratchFolder scratch;
  const Outcome run = init(scratch, "my_model2");
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_NE(run.out.find("cmake -S my_model2 -B my_model2/build"), std::string::npos);
  for (const char* file :
       {"CMakeLists.txt", "model.h", "train.cpp", "layouts_test.cpp", "train.yaml", "README.md", ".gitignore"}) {
    const std::string text = read_file(scratch / "my_model2/" + file);
    EXPECT_FALSE(text.empty()) << file;
    for (const char* mark : {"@NAME@", "@VERSION@"}) EXPECT_EQ(text.find(mark), std::string::npos) << file;
  }
  EXPECT_NE(read_file(scratch / "my_model2/CMakeLists.txt").find("project(my_model2 CXX)"), std::string::npos);
  EXPECT_EQ(
      run_program(fmt::format("cd {} && {} config train.yaml", scratch / "my_model2", gantry_program())).exit_code, 0);
}

// Checks the project of a family: all files exist, no mark is left, and the configuration loads.
void expect_project(const ScratchFolder& scratch, const std::string& family, std::vector<const char*> files) {
  std::string name = "my_" + family;
  std::replace(name.begin(), name.end(), '-', '_');  // a project's name has no hyphen
  const Outcome run = init(scratch, name + " --family " + family);
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_FALSE(fs::exists(scratch / name + "/model.h"));
  files.insert(files.end(), {"CMakeLists.txt", "train.cpp", "layouts_test.cpp", "train.yaml", "README.md"});
  for (const char* file : files) {
    const std::string text = read_file(scratch / name + "/" + file);
    EXPECT_FALSE(text.empty()) << file;
    for (const char* mark : {"@NAME@", "@VERSION@", "@FAMILY@", "@KEYS@", "@DATA@"})
      EXPECT_EQ(text.find(mark), std::string::npos) << file;
  }
  const Outcome config = run_program(fmt::format("cd {} && {} config train.yaml", scratch / name, gantry_program()));
  EXPECT_EQ(config.exit_code, 0) << config.err;
}

TEST(Init, WritesAProjectForEachFamily) {
  const ScratchFolder scratch;
  for (const auto& family : models::decoder_families()) {
    expect_project(scratch, family.model_type, {});
    EXPECT_NO_THROW(models::decoder_spec(family, family.small)) << family.model_type;
  }
  for (const char* family : {"bert", "roberta", "xlm-roberta", "distilbert", "nomic_bert", "electra", "modernbert",
                             "vit", "whisper", "t5", "mt5", "umt5", "bart", "pegasus"})
    expect_project(scratch, family, {"samples.h", "drawn_samples.h"});
  const Outcome wrong = init(scratch, "mine --family lama");
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_NE(wrong.err.find("did you mean 'llama'?"), std::string::npos) << wrong.err;
}

TEST(Init, TakesAnEmptyFolder) {
  const ScratchFolder scratch;
  fs::create_directory(scratch / "empty");
  EXPECT_EQ(init(scratch, "empty").exit_code, 0);
}

TEST(Init, RefusesWhatIsThereAndBadNamesInOneLine) {
  const ScratchFolder scratch;
  fs::create_directory(scratch / "full");
  scratch.write("full/mine", "kept");
  scratch.write("file", "kept");
  fs::create_symlink("nowhere", scratch / "dangling");
  const std::pair<const char*, const char*> wrong[] = {
      {"full", "full exists already and is not empty"},
      {"file", "file exists already"},
      {"dangling", "dangling exists already"},
      {"My", "'My' is not a valid project name"},
      {"2x", "'2x' is not a valid project name"},
      {"a-b", "'a-b' is not a valid project name"},
      {"../up", "'../up' is not a valid project name"},
      {"''", "'' is not a valid project name"},
      {"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "is not a valid project name"},
      {"", "name is required"},
      {"a b", "'b' is one argument too many"}};
  for (const auto& [name, said] : wrong) {
    const Outcome run = init(scratch, name);
    EXPECT_EQ(run.exit_code, 2) << name;
    EXPECT_NE(run.err.find(said), std::string::npos) << run.err;
    EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
  }
  EXPECT_EQ(read_file(scratch / "full/mine"), "kept");
  EXPECT_EQ(read_file(scratch / "file"), "kept");
}

TEST(Version, IsALineAndTheBuildsOptionsFollow) {
  const std::string text = run_program(gantry_program() + " --version").out;
  EXPECT_EQ(text.rfind("gantry 0.", 0), 0u);
  for (const char* line : {"\ncompiler: ", "\nbuild type: ", "\nLibTorch: 2.", "\nbackends: local (threads)"})
    EXPECT_NE(text.find(line), std::string::npos) << text;
}

Outcome train_with(const std::string& torch) {
  return run_program(fmt::format("GANTRY_TORCH={} {} train none.yaml", torch, gantry_program()));
}

TEST(LibTorch, IsTakenFromWhereTheVariableSaysAlone) {
  const ScratchFolder scratch;
  const Outcome missing = train_with(scratch.path());
  EXPECT_EQ(missing.exit_code, 2);
  EXPECT_NE(missing.err.find("has no lib/libtorch.so"), std::string::npos) << missing.err;
  // A Python environment with another version.
  fs::create_directories(scratch / "lib/python3.11/site-packages/torch/lib");
  scratch.write("lib/python3.11/site-packages/torch/lib/libtorch.so", "");
  scratch.write("lib/python3.11/site-packages/torch/version.py", "import os\n__version__ = '1.9.1+cpu'\n");
  const Outcome old = train_with(scratch.path());
  EXPECT_EQ(old.exit_code, 2);
  EXPECT_NE(old.err.find("torch is LibTorch 1.9.1; expected LibTorch 2."), std::string::npos) << old.err;
  EXPECT_EQ(std::count(old.err.begin(), old.err.end(), '\n'), 1) << old.err;
}

}  // namespace
}  // namespace gantry::testing
