// Queries of the file system. A path that the system cannot examine is an InputError.
#include "gantry/core/io/paths.h"

#include <filesystem>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "failing_call.h"
#include "gantry/core/error.h"
#include "program.h"

namespace gantry::testing {
namespace {

namespace fs = std::filesystem;

TEST(Paths, SayWhatLiesThere) {
  const ScratchFolder scratch;
  const fs::path file = scratch.write("b", "x"), folder = scratch / "a";
  fs::create_directory(folder);
  scratch.write("a/c", "x");
  EXPECT_TRUE(path_exists(file) && is_file(file) && !is_folder(file));
  EXPECT_TRUE(path_exists(folder) && is_folder(folder) && !is_file(folder));
  EXPECT_FALSE(path_exists(scratch / "none") || is_file(scratch / "none") || is_folder(scratch / "none"));
  EXPECT_FALSE(path_exists(file / "below a file"));
  EXPECT_EQ(entries_of(scratch.path()), (std::vector<fs::path>{folder, file}));
  EXPECT_EQ(files_below(scratch.path()), (std::vector<fs::path>{folder / "c", file}));
}

TEST(Paths, FilesBelowAFolderAreFoundBehindLinks) {
  const ScratchFolder scratch, elsewhere;
  elsewhere.write("photo", "x");
  fs::create_directory(scratch / "a");
  fs::create_directory_symlink(elsewhere.path(), scratch / "a/linked");
  fs::create_symlink(elsewhere / "photo", scratch / "b");
  fs::create_symlink("nowhere", scratch / ".#b");  // the lock of an editor
  EXPECT_EQ(files_below(scratch.path()), (std::vector<fs::path>{scratch / "a/linked/photo", scratch / "b"}));
  fs::create_symlink(elsewhere / "gone", scratch / "a/lost");
  EXPECT_THROW(files_below(scratch.path()), InputError);
  fs::remove(scratch / "a/lost");
  fs::create_directory_symlink(scratch.path(), scratch / "a/loop");
  EXPECT_THROW(files_below(scratch.path()), InputError);
}

// The test does not use permissions, because root may read everything.
TEST(Paths, AreInputErrorsIfTheyCanNotBeRead) {
  const ScratchFolder scratch;
  fs::create_symlink("loop", scratch / "loop");
  for (const fs::path& path : {fs::path(scratch / "loop"), fs::path(scratch / std::string(300, 'x'))}) {
    EXPECT_THROW(path_exists(path), InputError);
    EXPECT_THROW(is_folder(path), InputError);
    EXPECT_THROW(is_file(path), InputError);
    EXPECT_THROW(entries_of(path), InputError);
  }
  EXPECT_THROW(entries_of(scratch / "none"), InputError);
}

TEST(Paths, AFolderThatMayNotBeListedIsAnInputError) {
  const ScratchFolder scratch;
  const pid_t child = ::fork();
  if (child == 0) {
    if (!let_call_fail(SYS_getdents64, EACCES)) ::_exit(125);
    int refused = 0;
    for (const auto list : {entries_of, files_below}) try {
        list(scratch.path());
      } catch (const InputError& error) {
        refused += std::string(error.what()).find("cannot be read: Permission denied") != std::string::npos;
      }
    ::_exit(refused);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 125) GTEST_SKIP() << "this kernel has no seccomp";
  EXPECT_EQ(WEXITSTATUS(status), 2);
}

}  // namespace
}  // namespace gantry::testing
