// Disks that are slower than comm.timeout_seconds, disks that do not respond, and the agreement of all ranks
// on one checkpoint.
#include "gantry/checkpoint/disk_work.h"

#include <atomic>
#include <filesystem>

#include "faulty_files.h"
#include "gantry/checkpoint/format/manifest.h"
#include "gantry/core/error.h"
#include "program.h"
#include "small_run.h"

namespace gantry::testing {
namespace {

namespace fs = std::filesystem;

constexpr double kTimeout = 1;                 // comm.timeout_seconds
constexpr int kWordsATimeout = 8;              // progress reports per timeout
constexpr int kSlow = 3 * kWordsATimeout / 2;  // progress reports during one slow access

Config two_ranks() {
  Config config = small_config({.layout = {.data = 2}, .layers = 1});
  config.comm.timeout_seconds = kTimeout;
  return config;
}

// A slow disk. Its delay is a number of progress reports instead of a time.
class SlowDisk {
 public:
  DiskLimits limits() {
    return {.tell_seconds = kTimeout / kWordsATimeout, .notified = [this] {
              ++words_;
              words_.notify_all();
            }};
  }
  // Returns after `kSlow` more reports, the first time that it is called after begin().
  void take_time() {
    if (!is_slow_.exchange(false)) return;
    const int until = words_ + kSlow;
    for (int words = words_; words < until; words = words_) words_.wait(words);
    ++waits_;
  }
  void begin() { is_slow_ = true; }
  int waits() const { return waits_; }

 private:
  std::atomic<int> words_{0}, waits_{0};
  std::atomic<bool> is_slow_{false};
};

TEST(DiskWork, ASlowDiskEndsNothing) {
  const ScratchFolder scratch;
  const Config config = two_ranks();
  const int code = launch(config, [&](World& world) {
    SmallRun run(world, config);
    SlowDisk disk;
    FaultyFiles files;
    const bool is_slow_one = world.rank() == 1;
    if (is_slow_one) files.before_write = [&] { disk.take_time(); };
    for (const bool async : {false, true}) {
      CheckpointWriter writer(scratch / "c", run.mesh(), {.async = async, .files = &files, .disk = disk.limits()});
      disk.begin();
      writer.save(run.request(scratch / "c", async ? 2 : 1), run.state());
      writer.finish();
    }
    disk.begin();
    load_checkpoint(
        scratch / "c/step-000002", run.state(), run.mesh(),
        [&](std::uint64_t) {
          if (is_slow_one) disk.take_time();
        },
        disk.limits());
    if (is_slow_one) EXPECT_EQ(disk.waits(), 3);
    run.mesh().world_group().barrier().wait();
  });
  EXPECT_EQ(code, 0);
  EXPECT_EQ(find_newest_checkpoint(scratch / "c").folder, scratch / "c/step-000002");
}

TEST(DiskWork, ADiskThatDoesNotAnswerEndsTheJobByName) {
  const Config config = two_ranks();
  std::atomic<bool> notified{false};
  std::atomic<int> named{0};
  launch(config, [&](World& world) {
    const ProcessGroupMesh mesh(world);
    try {
      work_on_disk(mesh.world_group(), {.tell_seconds = kTimeout / kWordsATimeout, .stall_seconds = 0}, {}, [&] {
        if (world.rank() == 1) notified.wait(false);
      });
    } catch (const PeerError& error) {
      named +=
          std::string(error.what()).find("rank 1 of the job has not finished, and no rank has made progress for 0 s") !=
          std::string::npos;
    }
    notified = true;
    notified.notify_all();
  });
  EXPECT_EQ(named, 2);
}

TEST(DiskWork, WhatOneRankThrowsEndsAll) {
  const Config config = two_ranks();
  const int code = launch(config, [&](World& world) {
    const ProcessGroupMesh mesh(world);
    work_on_disk(mesh.world_group(), disk_limits(kTimeout), {}, [&] {
      if (world.rank() == 1) throw ResourceError({"a file", "can't be written", "a disk", "free some space"});
    });
  });
  EXPECT_EQ(code, ResourceError::kExitCode);
}

// Saves steps 1 and 2, with different values.
void save_two_steps(const ScratchFolder& scratch) {
  run_small({.layout = {.data = 2}, .layers = 1}, [&](SmallRun& run) {
    run.save(scratch / "c", 1);
    run.step(1);
    run.save(scratch / "c", 2);
  });
}

TEST(Agreement, RankZeroChoosesForAll) {
  const ScratchFolder scratch;
  save_two_steps(scratch);
  fs::rename(scratch / "c/step-000002", scratch / "later");
  run_small({.layout = {.data = 2}, .layers = 1}, [&](SmallRun& run) {
    const auto agreed = agree_on_checkpoint(run.mesh(), [&] {
      EXPECT_EQ(run.mesh().rank(), 0);
      const CompleteCheckpoint chosen = require_complete_checkpoint(scratch / "c");
      fs::rename(scratch / "later", scratch / "c/step-000002");  // other ranks would find this one
      return std::optional(chosen);
    });
    ASSERT_TRUE(agreed);
    EXPECT_EQ(agreed->info().step, 1);
    EXPECT_EQ(agreed->folder, scratch / "c/step-000001");
    EXPECT_FALSE(agree_on_checkpoint(run.mesh(), [] { return std::optional<CompleteCheckpoint>(); }));
  });
}

TEST(Agreement, ARankThatFindsAnotherManifestThereIsNamed) {
  const ScratchFolder scratch;
  save_two_steps(scratch);
  const Config config = small_config({.layout = {.data = 2}, .layers = 1});
  std::atomic<int> named{0};
  const int code = launch(config, [&](World& world) {
    SmallRun run(world, config);
    try {
      agree_on_checkpoint(run.mesh(), [&] {
        CompleteCheckpoint chosen{scratch / "c/step-000002", read_manifest_text(scratch / "c/step-000001")};
        return std::optional(chosen);
      });
    } catch (const CheckpointError& error) {
      const std::string line = error.what();
      named += line.find("finds a manifest with the hash") != line.npos && line.find("one file system") != line.npos;
      throw;
    }
  });
  EXPECT_EQ(code, CheckpointError::kExitCode);
  EXPECT_GE(named, 1);
}

}  // namespace
}  // namespace gantry::testing
