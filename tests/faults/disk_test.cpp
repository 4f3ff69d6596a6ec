// Full, read-only and broken disks, made by the kernel: a small tmpfs and a read-only one in a mount
// namespace of the test, and a failing system call. The run prints one line, exits with code 6, and keeps the
// last complete checkpoint.
#include <algorithm>
#include <cerrno>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <regex>

#include "failing_call.h"
#include "program.h"

namespace gantry::testing {
namespace {

using ::testing::HasSubstr;

// The command line of a run of `steps` steps on two ranks. Each checkpoint takes 1.6 MB.
std::string training(const ScratchFolder& scratch, const std::string& path, int steps, const std::string& sets = "") {
  const std::string text = some_letters(4000, 23);
  const std::string config = scratch.write(
      "train.yaml",
      fmt::format("model: {{policy: gpt2, config: {{n_embd: 64, n_layer: 2, n_head: 2, vocab_size: 256, "
                  "n_positions: 16}}}}\ndata: {{format: text, path: \"{}\", sequence_length: 16, batch_size: 4}}\n"
                  "parallel: {{tensor: 2}}\ncomm: {{threads_per_rank: 1}}\n"
                  "checkpoint: {{every: 1, keep: 0, resume: auto}}\n",
                  scratch.write("text.txt", text)));
  return fmt::format("{} train {} --set checkpoint.path={} --set train.steps={} {}", gantry_program(), config, path,
                     steps, sets);
}

// The command line that runs `script` in a new mount namespace, in which `disk` is a tmpfs of `megabytes` MB.
std::string with_disk(const ScratchFolder& scratch, const std::string& disk, int megabytes, const std::string& script) {
  const std::string name = scratch.write(
      "script",
      fmt::format("mkdir -p {0} && mount -t tmpfs -o size={1}m none {0} || exit 99\n", disk, megabytes) + script);
  return "unshare -rm sh " + name;
}

constexpr const char* kNeedsNamespaces = "needs mount namespaces: `unshare -rm true` fails here";

bool has_namespaces() { return run_program("unshare -rm true").exit_code == 0; }

void expect_one_line(const std::string& err, const std::string& said) {
  EXPECT_THAT(err, HasSubstr(said));
  EXPECT_EQ(std::count(err.begin(), err.end(), '\n'), 1) << err;
}

// Runs until the disk is full, enlarges the disk, and resumes the run.
void fill_disk(const std::string& said, int failing_call) {
  for (const char* async : {"false", "true"}) {
    SCOPED_TRACE(async);
    const ScratchFolder scratch;
    const std::string disk = scratch / "disk", err = scratch / "train_err",
                      verify = gantry_program() + " checkpoint verify ";
    const std::string train =
        training(scratch, disk + "/c", 20, fmt::format("--set checkpoint.async={} 2>{}", async, err));
    const std::string command = with_disk(
        scratch, disk, 6,
        fmt::format("{0} >/dev/null; echo full $?; {1}{2}/c; echo verified $?\n"
                    "cp {3} {3}.full; mount -o remount,size=64m {2} || exit 98\n"
                    "{0} | grep resuming; cat {3}; {1}{2}/c; echo verified $?; ls -A {2}/c | grep -c partial\n",
                    train, verify, disk, err));
    const Outcome run = failing_call ? run_with_failing_call(failing_call, ENOSYS, command) : run_program(command);
    expect_one_line(read_file(err + ".full"), said);
    const std::regex full(
        "full 6\n[^\n]*/step-00000([2-5]): sound[^\n]*\nverified 0\n"
        "resuming from [^\n]*/step-00000\\1 at step \\1\n[^\n]*/step-000020: sound[^\n]*\nverified 0\n0\n");
    EXPECT_TRUE(std::regex_match(run.out, full)) << run.exit_code << run.out << run.err << read_file(err + ".full");
  }
}

TEST(Disk, TooLittleSpaceIsSaidBeforeItIsFull) {
  if (!has_namespaces()) GTEST_SKIP() << kNeedsNamespaces;
  fill_disk("bytes are left, but this checkpoint needs", 0);
}

// If the free space is unknown, the write fails instead.
TEST(Disk, AFullOneIsSaid) {
  if (!has_namespaces()) GTEST_SKIP() << kNeedsNamespaces;
  if (run_with_failing_call(SYS_statfs, ENOSYS, "true").exit_code == 125)
    GTEST_SKIP() << "needs seccomp, which this kernel lacks";
  fill_disk("No space left on device", SYS_statfs);
}

TEST(Disk, AReadOnlyOneIsSaidAndItsCheckpointsStand) {
  if (!has_namespaces()) GTEST_SKIP() << kNeedsNamespaces;
  const ScratchFolder scratch;
  const std::string disk = scratch / "disk";
  const auto onto = [&](const char* folder) {
    return training(scratch, disk + folder, 4, fmt::format("2>{}{}", scratch.path(), folder)) + " >/dev/null";
  };
  const Outcome run = run_program(with_disk(
      scratch, disk, 64,
      fmt::format("{} >/dev/null; echo written $?; mount -o remount,ro {} || exit 98\n{}; echo read-only $?\n"
                  "{}; echo new $?\n{} checkpoint verify {}/c; echo verified $?\n",
                  training(scratch, disk + "/c", 2), disk, onto("/c"), onto("/new"), gantry_program(), disk)));
  const std::regex full("written 0\nread-only 6\nnew 6\n[^\n]*/step-000002: sound[^\n]*\nverified 0\n");
  EXPECT_TRUE(std::regex_match(run.out, full)) << run.exit_code << run.out << run.err;
  expect_one_line(read_file(scratch / "c"), disk + "/c/.lock: the file cannot be written: Read-only file system");
  expect_one_line(read_file(scratch / "new"), disk + "/new: the directory cannot be created: Read-only file system");
}

TEST(Disk, ASyncThatFailsIsSaid) {
  const ScratchFolder scratch;
  ASSERT_EQ(run_program(training(scratch, scratch / "c", 2)).exit_code, 0);
  for (const char* async : {"false", "true"}) {
    const Outcome run = run_with_failing_call(
        SYS_fsync, EIO, training(scratch, scratch / "c", 4, fmt::format("--set checkpoint.async={}", async)));
    if (run.exit_code == 125) GTEST_SKIP() << "needs seccomp, which this kernel lacks";
    EXPECT_EQ(run.exit_code, 6) << run.err;
    expect_one_line(run.err, "the file cannot be synced: Input/output error");
    const Outcome stands = run_program(gantry_program() + " checkpoint verify " + (scratch / "c"));
    EXPECT_EQ(stands.exit_code, 0) << stands.err;
    EXPECT_THAT(stands.out, HasSubstr("step-000002: sound"));
  }
}

}  // namespace
}  // namespace gantry::testing
