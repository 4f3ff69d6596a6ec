// Kills jobs of 2 x 2 ranks, or lets their disk fail, at every call of a save. Checks the checkpoints that
// remain and the results of a resumed job. Each job is a separate process, forked before the test has any
// threads.
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sys/wait.h>
#include <unistd.h>

#include "faulty_files.h"
#include "gantry/checkpoint/format/catalog.h"
#include "gantry/checkpoint/format/find.h"
#include "gantry/checkpoint/format/model_files.h"
#include "gantry/checkpoint/format/verify.h"
#include "gantry/checkpoint/hugging_face.h"
#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"
#include "program.h"
#include "small_run.h"

namespace gantry::testing {
namespace {

namespace fs = std::filesystem;
using Fault = FaultyFiles::Fault;

constexpr int kSteps = 6, kEvery = 2;

SmallRunOptions two_by_two() { return {.layout = {.pipeline = 2, .tensor = 2}, .optimizer = "sgd", .layers = 2}; }

// The file next to a directory that lists the steps that jobs have committed there. A step is added as soon
// as its checkpoint has its name, so that a later kill cannot lose it.
std::string notes_of(const std::string& directory) { return directory + ".committed"; }

void note_commits(FaultyFiles& files, const std::string& directory) {
  files.renamed = [directory](const std::string& to) {
    const fs::path place(to);
    if (const auto step = step_of_folder_name(place.filename()); step && place.parent_path() == directory)
      std::ofstream(notes_of(directory), std::ios::app) << *step << std::endl;
  };
}

std::int64_t last_commit(const std::string& directory) {
  std::ifstream notes(notes_of(directory));
  std::int64_t last = kEvery;  // the checkpoint of copy_of_base()
  for (std::int64_t step = 0; notes >> step;) last = step;
  return last;
}

// Resumes from the newest checkpoint in `directory`, trains to step `last`, and saves every kEvery steps.
// Returns the exit code. Sets `resumed` to the step of the checkpoint, or 0.
int run_job(const std::string& directory, int last, FaultyFiles& files, bool async, std::int64_t& resumed) {
  const Config config = small_config(two_by_two());
  return launch(config, [&](World& world) {
    SmallRun run(world, config);
    CheckpointWriter writer(directory, run.mesh(), {.async = async, .files = &files});
    std::int64_t done = 0;
    if (const auto found = find_newest_checkpoint(directory); found.folder) {
      run.load(*found.folder);
      done = read_checkpoint_info(*found.folder).step;
    }
    if (world.is_main()) resumed = done;
    for (std::int64_t step = done + 1; step <= last; ++step) {
      run.step(step);
      writer.check();
      if (step % kEvery == 0) writer.save(run.request(directory, step, /*keep=*/1), run.state());
    }
    writer.finish();
  });
}

struct Job {
  std::string directory;
  int last = kSteps;
  Fault fault = Fault::kNone;
  int at = -1, error = ENOSPC;
  bool lasting = false, async = false;
};

struct End {
  int exit_code;             // 128 + N after signal N
  int calls = 0;             // number of calls, if the job ended by itself
  std::int64_t resumed = 0;  // step of the checkpoint that it resumed from, if it ended by itself
  std::string err;
};

End run_child(const Job& job) {
  const ScratchFolder scratch;
  const std::string err = scratch / "err", calls = scratch / "calls";
  const pid_t child = ::fork();
  if (child == 0) {
    (void)!std::freopen(err.c_str(), "w", stderr);
    FaultyFiles files;
    files.fault = job.fault;
    files.at = job.at;
    files.error = job.error;
    files.from_there_on = job.lasting;
    note_commits(files, job.directory);
    std::int64_t resumed = 0;
    const int code = run_job(job.directory, job.last, files, job.async, resumed);
    std::ofstream(calls) << files.calls() << ' ' << resumed;
    std::fflush(stderr);
    ::_exit(code);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  End end{.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status), .err = read_file(err)};
  std::ifstream(calls) >> end.calls >> end.resumed;
  return end;
}

std::map<std::string, std::string> contents(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(folder)) files[entry.path().filename()] = read_file(entry.path());
  return files;
}

std::int64_t newest_step(const std::string& directory) {
  const auto found = find_newest_checkpoint(directory);
  if (!found.folder) return -1;
  EXPECT_EQ(verify_checkpoint(*found.folder).faults, std::vector<std::string>());
  return *step_of_folder_name(fs::path(*found.folder).filename());
}

class Crash : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(run_child({.directory = scratch_ / "whole"}).exit_code, 0);
    expected_ = contents(scratch_ / "whole/step-000006");
    ASSERT_EQ(expected_.size(), 5u);
    ASSERT_EQ(run_child({.directory = scratch_ / "base", .last = kEvery}).exit_code, 0);
  }

  // Returns a directory that has only the checkpoint of step 2.
  std::string copy_of_base(const std::string& name) {
    fs::copy(scratch_ / "base", scratch_ / name, fs::copy_options::recursive);
    return scratch_ / name;
  }

  // Expects that only the steps since the last commit are lost.
  void expect_resumes_to_the_same_bits(const std::string& directory) {
    const std::int64_t committed = last_commit(directory);
    EXPECT_EQ(newest_step(directory), committed);
    const End end = run_child({.directory = directory});
    ASSERT_EQ(end.exit_code, 0) << end.err;
    EXPECT_EQ(end.resumed, committed);
    fs::remove(notes_of(directory));
    const auto actual = contents(directory + "/step-000006");
    ASSERT_EQ(actual.size(), expected_.size());
    for (const auto& [name, bytes] : expected_) EXPECT_TRUE(actual.at(name) == bytes) << name << " differs";
    if (HasFailure())
      ADD_FAILURE() << run_program(gantry_program() + " checkpoint diff " + (scratch_ / "whole/step-000006") + " " +
                                   directory + "/step-000006")
                           .out;
    for (const auto& entry : fs::directory_iterator(directory)) {
      const std::string name = entry.path().filename();
      EXPECT_TRUE(name == ".lock" || name == "latest" || name == "step-000006") << name << " is left";
    }
  }

  // Kills a job that trains from step 2 to 4 and saves step 4, at every `stride`-th call. If `async`, the
  // save is in the background.
  void kill_at_every(int stride, bool async, int least_points) {
    const End calls = run_child({.directory = copy_of_base("count"), .last = 4, .fault = Fault::kKill, .async = async});
    ASSERT_EQ(calls.exit_code, 0) << calls.err;
    int points = 0, before = 0, after = 0;  // kills: all, before the commit, after it
    for (int at = 0; at < calls.calls && !HasFailure(); at += stride, ++points) {
      SCOPED_TRACE(fmt::format("killed at call {} of {}", at, calls.calls));
      const std::string directory = copy_of_base(fmt::format("kill{}", at));
      const End killed =
          run_child({.directory = directory, .last = 4, .fault = Fault::kKill, .at = at, .async = async});
      ASSERT_EQ(killed.exit_code, 128 + SIGKILL) << killed.err;
      last_commit(directory) == kEvery ? ++before : ++after;
      expect_resumes_to_the_same_bits(directory);
      fs::remove_all(directory);
    }
    EXPECT_GE(points, least_points);
    EXPECT_GT(before, 0);
    EXPECT_GT(after, 0);  // while the older checkpoint is removed
    fs::remove_all(scratch_ / "count");
    fs::remove(notes_of(scratch_ / "count"));
  }

  ScratchFolder scratch_;
  std::map<std::string, std::string> expected_;
};

// Kills at every third call, or at every call with GANTRY_LONG=1.
TEST_F(Crash, AKillAtAnyCallOfASaveEndsInTheSameBits) {
  const int stride = is_long_form() ? 1 : 3;
  kill_at_every(stride, false, 60 / stride);
}

TEST_F(Crash, AKillWhileASaveIsInTheBackgroundToo) { kill_at_every(7, true, 8); }

TEST_F(Crash, AFailingDiskIsSaidInOneLineAndTheLastCheckpointStands) {
  const int calls = run_child({.directory = copy_of_base("count"), .last = 4, .fault = Fault::kFail}).calls;
  for (const bool async : {false, true})
    for (const auto& [error, words] :
         {std::pair{ENOSPC, "No space left on device"}, {EIO, "Input/output error"}, {EROFS, "Read-only file system"}})
      for (const int at : {0, calls / 4, calls / 2, calls - 12}) {
        SCOPED_TRACE(fmt::format("{} at call {} of {}{}", words, at, calls, async ? " in the background" : ""));
        const std::string directory = copy_of_base("failing");
        const End end = run_child({.directory = directory,
                                   .last = 4,
                                   .fault = Fault::kFail,
                                   .at = at,
                                   .error = error,
                                   .lasting = true,
                                   .async = async});
        EXPECT_EQ(end.exit_code, ResourceError::kExitCode) << end.err;
        EXPECT_NE(end.err.find(words), std::string::npos) << end.err;
        EXPECT_EQ(end.err.rfind("error: ", 0), 0u) << end.err;
        EXPECT_EQ(std::count(end.err.begin(), end.err.end(), '\n'), 1) << end.err;
        expect_resumes_to_the_same_bits(directory);
        fs::remove_all(directory);
      }
}

TEST_F(Crash, ShortWritesAreContinued) {
  const std::string directory = copy_of_base("short");
  ASSERT_EQ(run_child({.directory = directory, .fault = Fault::kShortWrites}).exit_code, 0);
  EXPECT_EQ(contents(directory + "/step-000006"), expected_);
}

// Exports a model of two shards, in which all values are `value`. The exporting process is killed at call
// `at`, or not if that is negative. Returns the number of calls, or 0 if the process was killed.
int export_child(const std::string& directory, float value, int at) {
  const ScratchFolder scratch;
  const std::string calls = scratch / "calls";
  const pid_t child = ::fork();
  if (child == 0) {
    FaultyFiles files;
    if (at >= 0) files.fault = Fault::kKill;
    files.at = at;
    std::vector<ExportTensor> tensors;
    for (const char* name : {"a", "b"})
      tensors.push_back({name, {4}, torch::kFloat32, [value] { return torch::full({4}, value); }});
    save_hugging_face(directory, {{"model_type", "gpt2"}, {"value", value}}, tensors,
                      {.most_shard_bytes = 16, .files = &files});
    std::ofstream(calls) << files.calls();
    ::_exit(0);
  }
  int status = 0, made = 0;
  ::waitpid(child, &status, 0);
  std::ifstream(calls) >> made;
  return made;
}

// Expects that the configuration and all weights of an export have the same value, and returns this value.
// Returns nothing if the reader rejects the export.
std::optional<float> exported_value(const std::string& directory) {
  try {
    auto catalog = TensorCatalog::open(directory);
    std::set<float> values;
    for (const auto& [key, tensor] : catalog.tensors()) {
      const auto bytes = catalog.read(key);
      for (std::size_t i = 0; i < bytes.size(); i += sizeof(float)) {
        float value = 0;
        std::memcpy(&value, bytes.data() + i, sizeof value);
        values.insert(value);
      }
    }
    if (fs::exists(directory + "/config.json"))
      values.insert(read_json_object(directory + "/config.json").at("value").get<float>());
    EXPECT_EQ(values.size(), 1u) << "a mixture of two exports";
    return *values.begin();
  } catch (const Error&) {
    return std::nullopt;
  }
}

TEST(ExportCrash, AKillWhileOneModelReplacesAnotherLeavesNoMixture) {
  const ScratchFolder scratch;
  const int calls = export_child(scratch / "count", 1, -1);
  ASSERT_GT(calls, 20);
  for (int at = 0; at < calls; ++at) {
    SCOPED_TRACE(fmt::format("killed at call {} of {}", at, calls));
    const std::string directory = scratch / fmt::format("m{}", at);
    export_child(directory, 1, -1);
    export_child(directory, 2, at);
    exported_value(directory);
    export_child(directory, 3, -1);
    EXPECT_EQ(exported_value(directory), 3);
    fs::remove_all(directory);
  }
}

}  // namespace
}  // namespace gantry::testing
