// Checkpoints of an earlier run in the directory of a run are reported if a restart would resume from them.
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gantry/checkpoint/format/unrelated.h"
#include "gantry/core/error.h"
#include "program.h"
#include "tiny_checkpoint.h"

namespace gantry::testing {
namespace {

namespace fs = std::filesystem;

std::string refusal(const std::string& directory, const std::string& resume) {
  try {
    refuse_foreign_checkpoint(directory, resume);
  } catch (const CheckpointError& error) {
    return error.what();
  }
  return "";
}

TEST(Foreign, IsWhatTheRunDoesNotBeginFrom) {
  const ScratchFolder scratch;
  const std::string mine = scratch / "mine", other = scratch / "other";
  const std::string first = save_tiny(mine, 2), second = save_tiny(mine, 4), elsewhere = save_tiny(other, 9);
  fs::create_directory(mine + "/step-000007");  // incomplete, so no run resumes from it
  fs::create_directory_symlink(mine, scratch / "link");
  const std::optional<std::string> none;
  EXPECT_EQ(find_unrelated_checkpoint(mine, "none"), second);
  EXPECT_EQ(find_unrelated_checkpoint(mine, first), second);
  EXPECT_EQ(find_unrelated_checkpoint(mine, elsewhere), second);
  EXPECT_EQ(find_unrelated_checkpoint(mine, other), second);
  for (const std::string& own : {second, second + "/", mine, scratch / "link", scratch / "link/step-000004"})
    EXPECT_EQ(find_unrelated_checkpoint(mine, own), none) << own;
  EXPECT_EQ(find_unrelated_checkpoint(mine, "auto"), none);
  EXPECT_EQ(find_unrelated_checkpoint("", "none"), none);
  EXPECT_EQ(find_unrelated_checkpoint(scratch / "new", "none"), none);
  EXPECT_EQ(find_unrelated_checkpoint(scratch / "new", first), none);
  EXPECT_THROW(find_unrelated_checkpoint(mine, scratch / "missing"), CheckpointError);
}

TEST(Foreign, IsRefusedWithWhatToDo) {
  const ScratchFolder scratch;
  const std::string first = save_tiny(scratch / "c", 2), second = save_tiny(scratch / "c", 4);
  const std::string what =
      "checkpoint.path: " + second + ": the checkpoint is from an earlier run, but a restart would resume from it; ";
  EXPECT_EQ(refusal(scratch / "c", "none"), what +
                                                "expected a directory without checkpoints, or checkpoint.resume: auto; "
                                                "move it away, or resume from it");
  EXPECT_EQ(refusal(scratch / "c", first), what + "expected no newer checkpoint than " + first +
                                               ", from which this run starts; move it away, set another "
                                               "checkpoint.path, or resume from it");
  EXPECT_EQ(refusal(scratch / "c", second), "");
}

}  // namespace
}  // namespace gantry::testing
