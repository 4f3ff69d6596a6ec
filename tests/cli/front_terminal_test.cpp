// What a run shows on a terminal: one line that renews itself, with a bar where there is room, never wider than the
// window, also after the window was resized.
#include <algorithm>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <regex>

#include "program.h"
#include "terminal.h"

namespace gantry::testing {
namespace {

std::string training(const ScratchFolder& scratch, int steps, int log_every) {
  const std::string corpus = scratch.write("corpus.txt", std::string(4096, 'a'));
  return gantry_program() + " train " +
         scratch.write(
             "run.yaml",
             fmt::format("model: {{policy: gpt2, config: {{n_embd: 16, n_layer: 2, n_head: 2, vocab_size: 256, "
                         "n_positions: 16}}}}\nparallel: {{pipeline: 2}}\n"
                         "data: {{format: text, path: \"{}\", sequence_length: 16, batch_size: 4}}\n"
                         "train: {{steps: {}, log_every: {}}}\n",
                         corpus, steps, log_every));
}

std::vector<std::string> step_lines(const std::string& printed) {
  std::vector<std::string> found;
  for (const auto& line : lines_drawn(printed))
    if (line.find("step ") != std::string::npos) found.push_back(line);
  return found;
}

TEST(TerminalProgress, HasEverythingAndABarWhereThereIsRoom) {
  const ScratchFolder scratch;
  Terminal terminal(training(scratch, 30, 10), 160);
  EXPECT_EQ(terminal.finish(), 0) << terminal.printed();
  const auto lines = step_lines(terminal.printed());
  ASSERT_EQ(lines.size(), 30u) << terminal.printed();  // each step, though three of them stay
  const std::regex whole(
      "\\[=* *\\]  step +[0-9]+/30  loss [0-9.]+  grad_norm [0-9.]+  lr [0-9.e+-]+  [0-9]+ tokens/s  [0-9]+s left  "
      "[0-9]+ MB  [0-9]+% of ideal");
  for (const auto& line : lines) {
    EXPECT_TRUE(std::regex_match(line, whole)) << line;
    EXPECT_LE(line.size(), 160u);
  }
  const auto filled = [](const std::string& line) { return std::count(line.begin(), line.end(), '='); };
  EXPECT_LT(filled(lines.front()), filled(lines[15]));
  EXPECT_LT(filled(lines[15]), filled(lines.back()));
  EXPECT_EQ(lines.back().find("= "), std::string::npos);  // full
  // What stays: a line each log_every steps.
  std::size_t stays = 0;
  for (std::size_t at = 0; (at = terminal.printed().find("\n", at)) != std::string::npos; ++at)
    stays += terminal.printed().rfind("step ", at) > terminal.printed().rfind("\n", at - 1) ? 1 : 0;
  EXPECT_EQ(stays, 3u) << terminal.printed();
}

TEST(TerminalProgress, FitsAWindowThatIsResizedMeanwhile) {
  const ScratchFolder scratch;
  Terminal terminal(training(scratch, 4000, 1000), 150);
  ASSERT_TRUE(terminal.wait_for("step   10/4000")) << terminal.printed();
  terminal.resize(60);
  const std::size_t before = terminal.printed().size();
  ASSERT_TRUE(terminal.wait_for("step 1000/4000")) << terminal.printed();
  const auto lines = step_lines(terminal.printed().substr(before));
  ASSERT_GT(lines.size(), 100u);
  for (std::size_t i = lines.size() / 2; i < lines.size(); ++i) {  // some were on their way
    EXPECT_LE(lines[i].size(), 60u) << lines[i];
    EXPECT_TRUE(lines[i].starts_with("step ")) << lines[i];  // no room for a bar
  }
}

TEST(TerminalProgress, IsPlainLinesElsewhere) {
  const ScratchFolder scratch;
  const Outcome run = run_program(training(scratch, 6, 2));
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.out.find('\r'), std::string::npos);
  EXPECT_EQ(run.out.find('\033'), std::string::npos);
  EXPECT_EQ(step_lines(run.out).size(), 3u) << run.out;
}

}  // namespace
}  // namespace gantry::testing
