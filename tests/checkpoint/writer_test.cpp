// A writer can save again after a failed save.
#include "faulty_files.h"
#include "gantry/checkpoint/format/verify.h"
#include "gantry/core/error.h"
#include "program.h"
#include "small_run.h"

namespace gantry::testing {
namespace {

using Fault = FaultyFiles::Fault;

// Lets each call of a save fail once. The next save must succeed.
TEST(Writer, SavesAgainAfterAFailedSave) {
  run_small({.layers = 1}, [](SmallRun& run) {
    for (const bool async : {false, true}) {
      const ScratchFolder scratch;
      FaultyFiles files;
      CheckpointWriter writer(scratch.path(), run.mesh(), {.async = async, .files = &files});
      const auto save = [&](std::int64_t step) {
        writer.save(run.request(scratch.path(), step, 1), run.state());
        writer.finish();
      };
      save(1);
      const int before = files.calls();
      save(2);
      const int calls = files.calls() - before;
      int failed = 0;
      for (int at = 0; at < calls; ++at) {
        files.at = files.calls() + at;
        files.fault = Fault::kFail;
        try {
          save(3 + 2 * at);
        } catch (const ResourceError&) {
          ++failed;
        }
        files.fault = Fault::kNone;
        save(4 + 2 * at);
        EXPECT_EQ(writer.last(), scratch / step_folder_name(4 + 2 * at));
        EXPECT_EQ(verify_checkpoint(writer.last()).faults, std::vector<std::string>()) << at;
      }
      EXPECT_GT(failed, 15);
    }
  });
}

// Without finish(), the next save throws the error of the failed one, and the save after that succeeds.
TEST(Writer, TheNextSaveSaysWhatFailedInTheBackground) {
  run_small({.layers = 1}, [](SmallRun& run) {
    const ScratchFolder scratch;
    FaultyFiles files;
    CheckpointWriter writer(scratch.path(), run.mesh(), {.async = true, .files = &files});
    const auto save = [&](std::int64_t step) { writer.save(run.request(scratch.path(), step), run.state()); };
    files.at = files.calls() + 2;  // writing the rank's file, after the directory is created
    files.fault = Fault::kFail;
    save(1);
    EXPECT_THROW(save(2), ResourceError);
    files.fault = Fault::kNone;
    save(3);
    writer.finish();
    EXPECT_EQ(find_newest_checkpoint(scratch.path()).folder, scratch / "step-000003");
  });
}

}  // namespace
}  // namespace gantry::testing
