// Files that are either complete or absent. tests/checkpoint tests how checkpoints use them.
#include "gantry/core/io/durable_file.h"

#include <cerrno>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "gantry/core/error.h"
#include "gantry/core/io/paths.h"
#include "program.h"

namespace gantry::testing {
namespace {

using ::testing::HasSubstr;

// Counts synced files and directories, and fails in the chosen operation.
class NotedFiles final : public FileSystem {
 public:
  bool fails_to_rename = false, fails_to_sync = false;
  int files_synced = 0, folders_synced = 0;

  int sync(int) override { return fails_to_sync ? fail() : (++files_synced, 0); }
  int sync_folder(const std::string&) override { return ++folders_synced, 0; }
  int rename(const std::string& from, const std::string& to) override {
    return fails_to_rename ? fail() : FileSystem::rename(from, to);
  }

 private:
  static int fail() {
    errno = EIO;
    return -1;
  }
};

std::vector<std::string> names_in(const ScratchFolder& scratch) {
  std::vector<std::string> names;
  for (const auto& entry : entries_of(scratch.path())) names.push_back(entry.filename().string());
  return names;
}

TEST(DurableFile, TakesItsPlaceWhole) {
  const ScratchFolder scratch;
  scratch.write("f", "old");
  NotedFiles files;
  DurableFile file(scratch / "f", files);
  file.write("ne", 2);
  file.write("w", 1);
  EXPECT_EQ(names_in(scratch), (std::vector<std::string>{"f", "f.partial"}));
  file.finish();
  EXPECT_EQ(read_file(scratch / "f"), "old");
  EXPECT_EQ(read_file(scratch / "f.partial"), "new");
  file.commit();
  EXPECT_EQ(read_file(scratch / "f"), "new");
  EXPECT_EQ(names_in(scratch), std::vector<std::string>{"f"});
  EXPECT_EQ(files.files_synced, 1);
  EXPECT_EQ(files.folders_synced, 1);
}

TEST(DurableFile, LeavesTheOldOneWhereItIsNotCommitted) {
  const ScratchFolder scratch;
  scratch.write("f", "old");
  for (const bool is_finished : {false, true}) {
    DurableFile file(scratch / "f");
    file.write("new", 3);
    if (is_finished) file.finish();
  }
  for (bool NotedFiles::*fault : {&NotedFiles::fails_to_rename, &NotedFiles::fails_to_sync}) {
    NotedFiles files;
    files.*fault = true;
    try {
      write_text_durably(scratch / "f", "new", files);
      FAIL();
    } catch (const ResourceError& error) {
      EXPECT_THAT(error.what(), HasSubstr("Input/output error"));
    }
  }
  EXPECT_EQ(read_file(scratch / "f"), "old");
  EXPECT_EQ(names_in(scratch), std::vector<std::string>{"f"});
}

TEST(DurableFile, ReplacesTheTargetsOfLinks) {
  const ScratchFolder scratch;
  scratch.write("f", "old");
  std::filesystem::create_directory(scratch / "below");
  std::filesystem::create_symlink("../f", scratch / "below/link");
  std::filesystem::create_symlink("below/link", scratch / "first");
  std::filesystem::create_symlink("missing", scratch / "dangling");
  write_text_durably(scratch / "first", "new");
  write_text_durably(scratch / "dangling", "made");
  EXPECT_EQ(read_file(scratch / "f"), "new");
  EXPECT_EQ(read_file(scratch / "missing"), "made");
  for (const char* link : {"first", "below/link", "dangling"})
    EXPECT_TRUE(std::filesystem::is_symlink(scratch / link)) << link;
}

TEST(DurableFile, DoesNotReplacePipesAndDevices) {
  const ScratchFolder scratch;
  const std::string pipe = scratch / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  std::filesystem::create_symlink("/dev/null", scratch / "null");
  for (const std::string& path : {pipe, scratch / "null"}) {
    try {
      write_text_durably(path, "text");
      ADD_FAILURE() << path;
    } catch (const ResourceError& error) {
      EXPECT_THAT(error.what(), HasSubstr(path + ": the path is a device, a pipe or a socket"));
    }
  }
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
  EXPECT_EQ(names_in(scratch), (std::vector<std::string>{"null", "pipe"}));
}

TEST(DurableFile, MayHaveANameOfItsOwnAndNoSync) {
  const ScratchFolder scratch;
  NotedFiles files;
  DurableFile file(scratch / "f", files, {.suffix = ".of-me", .is_synced = false});
  EXPECT_EQ(names_in(scratch), std::vector<std::string>{"f.of-me"});
  file.commit();
  EXPECT_EQ(names_in(scratch), std::vector<std::string>{"f"});
  EXPECT_EQ(files.files_synced + files.folders_synced, 0);
}

}  // namespace
}  // namespace gantry::testing
