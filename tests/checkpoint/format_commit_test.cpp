// Tests the commit protocol call by call: the files that exist after a failure or a kill at each call.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "failing_call.h"
#include "faulty_files.h"
#include "gantry/checkpoint/format/checkpoint_folder.h"
#include "gantry/checkpoint/format/files.h"
#include "gantry/checkpoint/format/find.h"
#include "gantry/checkpoint/format/safetensors_header.h"
#include "gantry/checkpoint/format/staged_files.h"
#include "gantry/checkpoint/format/verify.h"
#include "gantry/core/error.h"
#include "program.h"

namespace gantry::testing {
namespace {

namespace fs = std::filesystem;
using Fault = FaultyFiles::Fault;

constexpr int kRanks = 2;

FileSystem& unfaulted() {
  static FaultyFiles files;
  return files;
}

// Writes one rank's row of a tensor with two rows. All bytes are `value`.
RankPart write_rank(const std::string& folder, int rank, unsigned char value, FileSystem& files) {
  const StoredType* type = find_stored_type("F32");
  const std::string header = make_safetensors_header({{"model/w", type, {1, 4}}}, {});
  const std::string data(16, static_cast<char>(value));
  HashedFile file(files, folder + "/" + rank_file_name(rank));
  file.write(header.data(), header.size());
  file.write(data.data(), data.size());
  file.finish();
  const ManifestTensor tensor{
      "model", "w", type, {2, 4}, {{rank_file_name(rank), {{.dim = 0, .ranges = {{rank, rank + 1}}}}}}};
  return {rank_file_name(rank), {file.hash(), file.size()}, {tensor}};
}

std::string save(const std::string& directory, std::int64_t step, FileSystem& files, int keep = 1) {
  CheckpointFolder folder(directory, files);
  folder.begin(step, 100);
  for (int rank = 0; rank < kRanks; ++rank)
    write_part(folder.partial(step), write_rank(folder.partial(step), rank, static_cast<unsigned char>(step), files),
               files);
  const std::atomic<bool> stop{false};
  EXPECT_TRUE(folder.wait_for_parts(step, kRanks, stop, std::chrono::seconds(5)));
  return folder.commit({.step = step}, kRanks, {.newest = keep, .stays = {}});
}

// Rank 0 commits as soon as it sees the parts of all ranks, so a rank must write its part last.
TEST(CheckpointCommit, APartIsTheLastThatARankWrites) {
  struct MovesTheFolder final : FileSystem {
    explicit MovesTheFolder(std::string folder) : folder(std::move(folder)) {}
    int rename(const std::string& from, const std::string& to) override {
      const int failed = FileSystem::rename(from, to);
      return to.ends_with(".part") ? FileSystem::rename(folder, folder + ".placed") : failed;
    }
    std::string folder;
  };
  const ScratchFolder scratch;
  const std::string folder = scratch / "partial";
  fs::create_directory(folder);
  MovesTheFolder files(folder);
  EXPECT_NO_THROW(write_part(folder, write_rank(folder, 1, 1, files), files));
  EXPECT_TRUE(fs::exists(folder + ".placed/rank-00001.safetensors.part"));
}

std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

std::int64_t newest_step(const std::string& directory) {
  const auto found = find_newest_checkpoint(directory);
  if (!found.folder) return -1;
  EXPECT_EQ(verify_checkpoint(*found.folder).faults, std::vector<std::string>());
  return *step_of_folder_name(fs::path(*found.folder).filename());
}

TEST(Commit, LeavesTheCheckpointItsLockAndLatest) {
  const ScratchFolder scratch;
  FileSystem& files = unfaulted();
  const std::string directory = scratch / "deep/checkpoints";
  EXPECT_EQ(save(directory, 2, files), directory + "/step-000002");
  EXPECT_EQ(save(directory, 4, files, 2), directory + "/step-000004");
  EXPECT_EQ(names_in(directory), (std::vector<std::string>{".lock", "latest", "step-000002", "step-000004"}));
  EXPECT_EQ(read_file(directory + "/latest"), "step-000004\n");
  EXPECT_EQ(save(directory, 4, files, 1), directory + "/step-000004") << "the same step again";
  EXPECT_EQ(names_in(directory), (std::vector<std::string>{".lock", "latest", "step-000004"}));
  EXPECT_EQ(names_in(directory + "/step-000004"),
            (std::vector<std::string>{"manifest.json", "rank-00000.safetensors", "rank-00001.safetensors"}));
}

TEST(Commit, LatestIsTheNewestWhateverWasSavedLast) {
  const ScratchFolder scratch;
  save(scratch / "c", 4, unfaulted(), 0);
  save(scratch / "c", 2, unfaulted(), 0);
  EXPECT_EQ(read_file(scratch / "c/latest"), "step-000004\n");
  fs::remove(scratch / "c/step-000004/rank-00001.safetensors");
  save(scratch / "c", 3, unfaulted(), 0);
  EXPECT_EQ(read_file(scratch / "c/latest"), "step-000003\n") << "step 4 is not complete";
}

// Kills the saves of steps 2, 4 and again 4 at each of their calls. Then the next job starts.
TEST(Commit, AKillAtAnyCallLosesNothingThatWasCommitted) {
  int calls = 0;
  {
    const ScratchFolder scratch;
    FaultyFiles files;
    for (const int step : {2, 4, 4}) save(scratch / "c", step, files);
    calls = files.calls();
  }
  ASSERT_GT(calls, 60);
  for (int at = 0; at < calls; ++at) {
    const ScratchFolder scratch;
    const pid_t child = ::fork();
    if (child == 0) {
      FaultyFiles files;
      files.fault = Fault::kKill;
      files.at = at;
      for (const int step : {2, 4, 4}) {
        save(scratch / "c", step, files);
        std::ofstream(scratch / "committed") << step;
      }
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << at;
    const std::string committed = read_file(scratch / "committed");
    fs::create_directories(scratch / "c");
    CheckpointFolder(scratch / "c", unfaulted());  // the next job removes leftovers
    EXPECT_GE(newest_step(scratch / "c"), committed.empty() ? -1 : std::stoi(committed)) << "killed at call " << at;
    for (const auto& name : names_in(scratch / "c"))
      EXPECT_TRUE(name == ".lock" || name == "latest" || step_of_folder_name(name))
          << name << " is left at call " << at;
    save(scratch / "c", 6, unfaulted());
    EXPECT_EQ(newest_step(scratch / "c"), 6);
    EXPECT_EQ(names_in(scratch / "c").size(), 3u) << at;
  }
}

TEST(Commit, AnyFailingCallIsAResourceErrorAndTheLastCheckpointStands) {
  for (const int error : {ENOSPC, EIO, EROFS})
    for (const bool lasting : {false, true}) {
      for (int at = 0;; ++at) {
        const ScratchFolder scratch;
        save(scratch / "c", 2, unfaulted());
        FaultyFiles files;
        files.fault = Fault::kFail;
        files.at = at;
        files.error = error;
        files.from_there_on = lasting;
        bool failed = false;
        try {
          save(scratch / "c", 4, files);
        } catch (const ResourceError& thrown) {
          failed = true;
          EXPECT_NE(std::string(thrown.what()).find(std::strerror(error)), std::string::npos) << thrown.what();
        }
        EXPECT_GE(newest_step(scratch / "c"), 2) << at;
        if (failed) continue;
        EXPECT_GT(at, 15) << "every call up to the last one must have failed once";
        break;
      }
    }
}

// On NFS, a file that another host has open gets another name, which cannot be removed.
TEST(Commit, AnOlderStepThatCannotBeRemovedIsWarnedOfAndTriedAgain) {
  const ScratchFolder scratch;
  FaultyFiles files;
  files.is_held = [](const std::string& path) { return path.find(".step-000002.removed/rank") != path.npos; };
  save(scratch / "c", 2, files);
  CheckpointFolder folder(scratch / "c", files);
  const auto save_next = [&](std::int64_t step) {
    folder.begin(step, 100);
    for (int rank = 0; rank < kRanks; ++rank)
      write_part(folder.partial(step), write_rank(folder.partial(step), rank, 1, files), files);
    return folder.commit({.step = step}, kRanks, {.newest = 1, .stays = {}});
  };
  EXPECT_EQ(save_next(4), scratch / "c/step-000004");
  const auto warnings = folder.take_warnings();
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("cannot be removed: Device or resource busy; "), std::string::npos) << warnings[0];
  save_next(6);
  EXPECT_TRUE(folder.take_warnings().empty()) << "once a folder";
  EXPECT_EQ(names_in(scratch / "c"),
            (std::vector<std::string>{".lock", ".step-000002.removed", "latest", "step-000006"}));
  files.is_held = {};
  save_next(8);
  EXPECT_EQ(names_in(scratch / "c"), (std::vector<std::string>{".lock", "latest", "step-000008"}));
}

TEST(Commit, LeftoversThatCannotBeRemovedAreWarnedOf) {
  const ScratchFolder scratch;
  fs::create_directories(scratch / "c/.step-000002.partial");
  scratch.write("c/.step-000002.partial/rank", "x");
  FaultyFiles files;
  files.is_held = [](const std::string& path) { return path.ends_with("/rank"); };
  CheckpointFolder folder(scratch / "c", files);
  EXPECT_EQ(folder.take_warnings().size(), 1u);
}

TEST(Commit, ShortWritesAreContinued) {
  const ScratchFolder scratch;
  FaultyFiles files;
  files.fault = Fault::kShortWrites;
  save(scratch / "c", 2, files);
  EXPECT_EQ(newest_step(scratch / "c"), 2);
}

TEST(Commit, TooLittleSpaceIsSaidBeforeAnythingIsWritten) {
  const ScratchFolder scratch;
  save(scratch / "c", 2, unfaulted());
  FaultyFiles files;
  files.room = 1000;
  try {
    save(scratch / "c", 4, files);
    FAIL();
  } catch (const ResourceError& error) {
    EXPECT_NE(std::string(error.what()).find("1000 bytes are left"), std::string::npos) << error.what();
  }
  EXPECT_EQ(names_in(scratch / "c"), (std::vector<std::string>{".lock", "latest", "step-000002"}));
}

TEST(Commit, OneJobAFolder) {
  const ScratchFolder scratch;
  const CheckpointFolder first(scratch / "c", unfaulted());
  try {
    const CheckpointFolder second(scratch / "c", unfaulted());
    FAIL();
  } catch (const CheckpointError& error) {
    EXPECT_NE(std::string(error.what()).find("process " + std::to_string(::getpid())), std::string::npos)
        << error.what();
  }
}

// Lustre without -o flock, FUSE and old kernels do not support locks. Two checkpoint directories and the save
// of a model cause only one warning.
TEST(Commit, AFileSystemWithoutLocksIsAWarning) {
  for (const int lacking : {ENOLCK, EOPNOTSUPP, ENOSYS}) {
    const ScratchFolder scratch;
    const pid_t child = ::fork();
    if (child == 0) {
      if (!let_call_fail(SYS_flock, lacking)) ::_exit(125);
      if (!std::freopen((scratch / "said").c_str(), "w", stderr)) ::_exit(124);
      try {
        const CheckpointFolder first(scratch / "c", unfaulted()), second(scratch / "d", unfaulted());
        StagedFiles staged(scratch / "m", unfaulted());
        write_text_durably(staged.path("config.json"), "{}", unfaulted());
        staged.place();
      } catch (...) {
        ::_exit(1);
      }
      std::fflush(stderr);
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 125) GTEST_SKIP() << "needs seccomp, which this kernel lacks";
    EXPECT_EQ(status, 0);
    EXPECT_EQ(read_file(scratch / "m/config.json"), "{}");
    const std::string said = read_file(scratch / "said");
    EXPECT_NE(said.find(std::string("cannot be locked (") + std::strerror(lacking) + ")"), std::string::npos) << said;
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
  }
}

TEST(Commit, OnlyLeftoversOfCheckpointsAreCleared) {
  const ScratchFolder scratch;
  for (const char* name : {"c/.step-000002.partial", "c/.step-000003.removed", "c/.step-000004.replaced", "c/notes",
                           "c/.step-x.partial", "c/.git"})
    fs::create_directories(scratch / name);
  CheckpointFolder(scratch / "c", unfaulted());
  EXPECT_EQ(names_in(scratch / "c"),
            (std::vector<std::string>{".git", ".lock", ".step-x.partial", "notes", "step-000004"}));
}

TEST(Commit, AMissingPartIsNamed) {
  const ScratchFolder scratch;
  CheckpointFolder folder(scratch / "c", unfaulted());
  folder.begin(2, 100);
  write_part(folder.partial(2), write_rank(folder.partial(2), 0, 1, unfaulted()), unfaulted());
  std::atomic<bool> stop{false};
  try {
    folder.wait_for_parts(2, kRanks, stop, std::chrono::seconds(0));
    FAIL();
  } catch (const PeerError& error) {
    EXPECT_NE(std::string(error.what()).find("rank 1"), std::string::npos) << error.what();
  }
  stop = true;
  EXPECT_FALSE(folder.wait_for_parts(2, kRanks, stop, std::chrono::seconds(5)));
}

}  // namespace
}  // namespace gantry::testing
