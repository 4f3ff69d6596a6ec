// Long checkpoint commands show a progress bar on a terminal and remove it at the end. Elsewhere they show
// none.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <regex>

#include "../cli/terminal.h"
#include "program.h"
#include "tiny_checkpoint.h"

namespace gantry::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Expects that a command shows a bar for each of `labels`, and that its last line contains `last` and no bar.
void expect_bars(const std::string& arguments, const std::vector<std::string>& labels, const std::string& last) {
  Terminal terminal(gantry_program() + " checkpoint " + arguments, 100);
  EXPECT_EQ(terminal.finish(), 0) << terminal.printed();
  const auto lines = lines_drawn(terminal.printed());
  for (const auto& label : labels) {
    const std::regex bar(label + R"( \[=* *\] +[0-9]+% of [0-9.]+ [kM]?B)");
    const bool shown =
        std::any_of(lines.begin(), lines.end(), [&](const std::string& line) { return std::regex_match(line, bar); });
    EXPECT_TRUE(shown) << label << ": " << terminal.printed();
  }
  ASSERT_FALSE(lines.empty());
  EXPECT_THAT(lines.back(), HasSubstr(last));
  EXPECT_THAT(lines.back(), Not(HasSubstr("[")));
}

TEST(Progress, IsShownOfReadingCheckpoints) {
  const ScratchFolder scratch;
  const std::string folder = save_tiny(scratch / "c", 7);
  expect_bars("verify " + folder, {"verifying"}, "sound; 4 files");
  expect_bars("diff " + folder + " " + folder, {"comparing"}, "3 tensors, 0 differ");
  const Outcome elsewhere = run_program(gantry_program() + " checkpoint verify " + folder);
  EXPECT_EQ(elsewhere.err, "");
}

TEST(Progress, IsShownOfMakingThem) {
  const ScratchFolder scratch;
  const std::string model = std::string(GANTRY_SOURCE_DIR) + "/tests/golden/gpt2";
  expect_bars(fmt::format("import {} {}", model, scratch / "c"), {"reading", "writing"}, "imported");
  expect_bars(fmt::format("reshard {} {} --set parallel.tensor=2", scratch / "c", scratch / "r"),
              {"reading", "writing"}, "resharded");
  expect_bars(fmt::format("export {} {}", scratch / "r", scratch / "hf"), {"exporting"}, "exported");
}

}  // namespace
}  // namespace gantry::testing
