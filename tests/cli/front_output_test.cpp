// Output of the front program to a full or closed stdout.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "program.h"

namespace gantry::testing {
namespace {

const std::string kDemo = std::string(GANTRY_SOURCE_DIR) + "/examples/demo.yaml";

const std::string kPrinting[] = {"--help",
                                 "--version",
                                 "help",
                                 "help schedule draw",
                                 "train --help",
                                 "doctor",
                                 "config " + kDemo,
                                 "config --json " + kDemo,
                                 "schedule show 1f1b -p 4 -m 8",
                                 "schedule check 1f1b -p 4 -m 8",
                                 "schedule simulate 1f1b -p 4 -m 8",
                                 "schedule draw 1f1b -p 4 -m 8 --format svg"};

TEST(Output, AFullDeviceIsOneErrorLine) {
  for (const auto& arguments : kPrinting) {
    const Outcome run = run_program(fmt::format("{} {} >/dev/full", gantry_program(), arguments));
    EXPECT_EQ(run.exit_code, 6) << arguments;
    EXPECT_EQ(run.err,
              "error: stdout: the output cannot be written: No space left on device; free some space there, or write "
              "to another place\n")
        << arguments;
  }
}

// The limit of a file's size stands for a full disk.
TEST(Output, ADiagramIsCompleteOrAbsent) {
  const ScratchFolder scratch;
  const Outcome run =
      run_program(fmt::format("trap '' XFSZ; ulimit -f 1; {} schedule draw 1f1b -p 4 -m 8 --format svg "
                              "--output {}",
                              gantry_program(), scratch / "diagram.svg"));
  EXPECT_EQ(run.exit_code, 6) << run.err;
  EXPECT_EQ(run_program("ls -A " + scratch.path()).out, "");
}

TEST(Output, AClosedPipeEndsQuietly) {
  // More than a pipe holds, so that the program writes to a reader that has left.
  const std::string big = gantry_program() + " schedule show 1f1b -p 64 -m 400";
  const Outcome ended = run_program(big + " | head -1");
  EXPECT_EQ(ended.exit_code, 0);
  EXPECT_EQ(ended.err, "");
  EXPECT_EQ(ended.out, "1f1b: 64 ranks, 64 stages, 400 microbatches\n");
  // Under a parent that ignores SIGPIPE the write itself fails.
  const Outcome ignored = run_program(fmt::format("trap '' PIPE; {{ {}; echo $? >&2; }} | head -1", big));
  EXPECT_EQ(ignored.err, "0\n");
}

}  // namespace
}  // namespace gantry::testing
