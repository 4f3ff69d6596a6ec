// Saves a model over an earlier one. After a kill or a disk failure at any call, the directory never mixes
// files of both.
#include <cstring>
#include <filesystem>
#include <gtest/gtest.h>
#include <map>
#include <sys/wait.h>
#include <unistd.h>

#include "faulty_files.h"
#include "gantry/checkpoint/format/model_files.h"
#include "gantry/checkpoint/format/staged_files.h"
#include "gantry/core/error.h"
#include "program.h"

namespace gantry::testing {
namespace {

namespace fs = std::filesystem;
using Fault = FaultyFiles::Fault;
using Files = std::map<std::string, std::string>;

// A model in two shards. Each file contains the name of its run.
Files model_of(const std::string& run) {
  Files files{{"config.json", "config of " + run}, {kModelIndex, "index of " + run}};
  for (const char* shard : {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"})
    files[shard] = "shard of " + run;
  return files;
}

void save_model(const std::string& directory, const std::string& run, FileSystem& files) {
  StagedFiles staged(directory, files);
  for (const auto& [name, text] : model_of(run)) {
    OutputFile file(files, staged.path(name));
    file.write(text.data(), text.size());
    file.finish();
  }
  staged.place();
}

Files files_in(const std::string& directory) {
  Files files;
  for (const auto& entry : fs::directory_iterator(directory))
    if (entry.is_regular_file()) files[entry.path().filename()] = read_file(entry.path());
  return files;
}

FileSystem& sound_files() {
  static FaultyFiles files;
  return files;
}

// True if all files are from this save. config.json may be missing.
bool are_of(const Files& found, const std::string& run) {
  Files expected = model_of(run);
  if (!found.contains("config.json")) expected.erase("config.json");
  return found == expected;
}

// Expects that a reader gets the files of a single save, and that the next save leaves no trace of an
// interrupted one.
void expect_one_model(const std::string& directory) {
  const Files found = files_in(directory);
  if (found.contains("config.json") || found.contains(kModelIndex))
    EXPECT_TRUE(are_of(found, "old") || are_of(found, "new"));
  if (!found.contains("config.json")) EXPECT_NE(unfinished_placing(directory), "");
  { const StagedFiles next(directory, sound_files()); }
  const Files full = files_in(directory);
  EXPECT_TRUE(full == model_of("old") || full == model_of("new"));
  EXPECT_FALSE(fs::exists(directory + "/.parts") || fs::exists(directory + "/.placing"));
  save_model(directory, "next", sound_files());
  EXPECT_EQ(files_in(directory), model_of("next"));
}

int calls_of_a_save() {
  const ScratchFolder scratch;
  FaultyFiles files;
  save_model(scratch / "m", "new", files);
  return files.calls();
}

TEST(Staged, AKillAtAnyCallLeavesTheEarlierModelOrTheNewOneOrNone) {
  const int calls = calls_of_a_save();
  ASSERT_GT(calls, 20);
  for (int at = 0; at < calls; ++at) {
    SCOPED_TRACE(at);
    const ScratchFolder scratch;
    save_model(scratch / "m", "old", sound_files());
    const pid_t child = ::fork();
    if (child == 0) {
      FaultyFiles files;
      files.fault = Fault::kKill;
      files.at = at;
      save_model(scratch / "m", "new", files);
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
    expect_one_model(scratch / "m");
  }
}

TEST(Staged, AFullDiskLeavesTheEarlierModel) {
  const int calls = calls_of_a_save();
  for (const bool lasting : {false, true})
    for (int at = 0; at < calls; ++at) {
      SCOPED_TRACE(at);
      const ScratchFolder scratch;
      save_model(scratch / "m", "old", sound_files());
      FaultyFiles files;
      files.fault = Fault::kFail;
      files.at = at;
      files.from_there_on = lasting;
      try {
        save_model(scratch / "m", "new", files);
      } catch (const ResourceError& error) {
        EXPECT_NE(std::string(error.what()).find(std::strerror(ENOSPC)), std::string::npos) << error.what();
      }
      expect_one_model(scratch / "m");
    }
}

TEST(Staged, OneJobADirectory) {
  const ScratchFolder scratch;
  const StagedFiles first(scratch / "m");
  try {
    const StagedFiles second(scratch / "m");
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("another job is writing a model to this directory"), std::string::npos)
        << error.what();
  }
  EXPECT_TRUE(fs::exists(StagedFiles::folder(scratch / "m"))) << "the first one's";
}

TEST(Staged, OtherFilesStay) {
  const ScratchFolder scratch;
  save_model(scratch / "m", "old", sound_files());
  scratch.write("m/tokenizer.json", "{}");
  save_model(scratch / "m", "new", sound_files());
  Files expected = model_of("new");
  expected["tokenizer.json"] = "{}";
  EXPECT_EQ(files_in(scratch / "m"), expected);
}

}  // namespace
}  // namespace gantry::testing
