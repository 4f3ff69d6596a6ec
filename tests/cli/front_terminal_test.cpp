// The output of a run on a terminal: one line that is rewritten, with a bar if the window is wide enough. The line is
// never wider than the window, also after a resize. Other output has its own lines. Generated text appears token by
// token.
#include <algorithm>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "program.h"
#include "terminal.h"

namespace gantry::testing {
namespace {

std::string training(const ScratchFolder& scratch, int steps, int log_every, const std::string& more = "") {
  const std::string corpus = scratch.write("corpus.txt", std::string(4096, 'a'));
  return gantry_program() + " train " +
         scratch.write(
             "run.yaml",
             fmt::format("model: {{policy: gpt2, config: {{n_embd: 16, n_layer: 2, n_head: 2, vocab_size: 256, "
                         "n_positions: 16}}}}\nparallel: {{pipeline: 2}}\n"
                         "data: {{format: text, path: \"{}\", sequence_length: 16, batch_size: 4}}\n"
                         "train: {{steps: {}, log_every: {}}}\n{}",
                         corpus, steps, log_every, more));
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
  const std::regex full(
      "\\[=* *\\]  step +[0-9]+/30  loss [0-9.]+  grad_norm [0-9.]+  lr [0-9.e+-]+  [0-9]+ tokens/s  [0-9]+s left  "
      "[0-9]+ MB  [0-9]+% of ideal");
  for (const auto& line : lines) {
    EXPECT_TRUE(std::regex_match(line, full)) << line;
    EXPECT_LE(line.size(), 160u);
    EXPECT_EQ(line.find("]"), lines.front().find("]")) << line;
  }
  EXPECT_NE(terminal.printed().find("% of ideal: computing time of the pipeline's ranks"), std::string::npos);
  const auto filled = [](const std::string& line) { return std::count(line.begin(), line.end(), '='); };
  EXPECT_LT(filled(lines.front()), filled(lines[15]));
  EXPECT_LT(filled(lines[15]), filled(lines.back()));
  EXPECT_EQ(lines.back().find("= "), std::string::npos);  // full
  // One line per log_every steps remains.
  std::size_t stays = 0;
  std::istringstream printed(terminal.printed());
  for (std::string line; std::getline(printed, line);) stays += line.find("step ") != std::string::npos ? 1 : 0;
  EXPECT_EQ(stays, 3u) << terminal.printed();
}

TEST(PredictedBubble, IsThatOfConfig) {
  const ScratchFolder scratch;
  const std::string line = training(scratch, 1, 1, "output: " + (scratch / "run") + "\n");
  ASSERT_EQ(run_program(line).exit_code, 0);
  const auto shown =
      nlohmann::json::parse(run_program(gantry_program() + " config --json " + (scratch / "run.yaml")).out);
  const auto metrics = nlohmann::json::parse(read_file(scratch / "run/metrics.jsonl"));
  EXPECT_GT(shown["step"]["bubble_rate"].get<double>(), 0);
  EXPECT_EQ(metrics["predicted_bubble"], shown["step"]["bubble_rate"]);
}

// The width is less than that of the longest bar, so that it depends on the lengths of the numbers.
TEST(TerminalProgress, KeepsTheWidthOfTheBar) {
  const ScratchFolder scratch;
  Terminal terminal(training(scratch, 120, 1), 128);
  EXPECT_EQ(terminal.finish(), 0) << terminal.printed();
  const auto lines = step_lines(terminal.printed());
  ASSERT_EQ(lines.size(), 120u) << terminal.printed();
  EXPECT_LT(lines.front().find("]"), 28u);
  // Longer numbers make it shorter, and shorter ones never longer.
  for (std::size_t i = 1; i < lines.size(); ++i) EXPECT_LE(lines[i].find("]"), lines[i - 1].find("]")) << lines[i];
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

// Whether `text` was printed, and each time at a line's begin.
::testing::AssertionResult has_lines_of_its_own(const std::string& printed, const std::string& text) {
  int found = 0;
  for (const auto& line : lines_drawn(printed)) {
    if (line.find(text) == std::string::npos) continue;
    if (!line.starts_with(text)) return ::testing::AssertionFailure() << "'" << line << "' in " << printed;
    ++found;
  }
  return found > 0 ? ::testing::AssertionSuccess() : ::testing::AssertionFailure() << text << " is not in " << printed;
}

TEST(TerminalProgress, LeavesItsLineAboveAnError) {
  const ScratchFolder scratch;
  Terminal terminal(training(scratch, 30, 10, "optimizer: {lr: 1.0e+30}\n"), 160);
  EXPECT_EQ(terminal.finish(), 8) << terminal.printed();
  EXPECT_TRUE(has_lines_of_its_own(terminal.printed(), "error: "));
  EXPECT_TRUE(std::regex_search(terminal.printed(), std::regex("step +[1-9]/30 [^\r\n]* left[^\r\n]*\r\nerror: ")))
      << terminal.printed();
}

TEST(TerminalProgress, GivesWayToProfiles) {
  for (const bool has_output : {true, false}) {
    const ScratchFolder scratch;
    std::string more = "profile: {wait: 1, warmup: 1, active: 2}\n";
    if (has_output) more += fmt::format("output: \"{}\"\n", scratch / "run");
    Terminal terminal(training(scratch, 9, 5, more), 160);
    EXPECT_EQ(terminal.finish(), 0) << terminal.printed();
    if (has_output) EXPECT_TRUE(has_lines_of_its_own(terminal.printed(), "profile: "));
    EXPECT_EQ(step_lines(terminal.printed()).size(), 9u) << terminal.printed();
    for (const auto& line : step_lines(terminal.printed())) {
      EXPECT_TRUE(line.starts_with("[")) << line;
      EXPECT_EQ(line.find("own ms"), std::string::npos) << line;
    }
    EXPECT_NE(terminal.printed().find("own ms"), std::string::npos) << terminal.printed();
  }
}

TEST(TerminalProgress, GivesWayToWarnings) {
  const ScratchFolder scratch;
  Terminal terminal(training(scratch, 6, 5, "optimizer: {lr: 1.0e+30}\n") + " --set train.non_finite=skip", 160);
  EXPECT_EQ(terminal.finish(), 0) << terminal.printed();
  EXPECT_TRUE(has_lines_of_its_own(terminal.printed(), "warning: step 3 is skipped"));
}

TEST(TerminalProgress, LeavesItsLineAboveTheEndOfAStoppedRun) {
  const ScratchFolder scratch;
  const std::string more =
      fmt::format("checkpoint: {{path: \"{}\"}}\noutput: \"{}\"\n", scratch / "saved", scratch / "run");
  Terminal terminal(training(scratch, 1000000, 1000000, more), 160);
  ASSERT_TRUE(terminal.wait_for("step       5/1000000")) << terminal.printed();
  terminal.type("\003");
  EXPECT_EQ(terminal.finish(), 75) << terminal.printed();
  for (const char* line : {"bubble of the last step", "metrics: ", "checkpoint: "})
    EXPECT_TRUE(has_lines_of_its_own(terminal.printed(), line));
  EXPECT_NE(terminal.printed().find(" left"), std::string::npos);
}

TEST(TerminalProgress, IsPlainLinesElsewhere) {
  const ScratchFolder scratch;
  const Outcome run = run_program(training(scratch, 6, 2));
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.out.find('\r'), std::string::npos);
  EXPECT_EQ(run.out.find('\033'), std::string::npos);
  EXPECT_EQ(step_lines(run.out).size(), 3u) << run.out;
}

// There are more tokens than the test waits for, so the visible text was printed before the end of generation.
TEST(TerminalGeneration, ShowsATextAsItComes) {
  const ScratchFolder scratch;
  const std::string config = scratch.write(
      "train.yaml",
      fmt::format("model: {{policy: llama, config: {{hidden_size: 16, intermediate_size: 16, num_hidden_layers: 2, "
                  "num_attention_heads: 2, vocab_size: 256, max_position_embeddings: 2000000}}}}\n"
                  "data: {{format: text, path: \"{}\", sequence_length: 16, batch_size: 4}}\n"
                  "optimizer: {{lr: 0.05}}\ntrain: {{steps: 20}}\ncheckpoint: {{path: \"{}\"}}\n",
                  scratch.write("corpus.txt", std::string(4096, 'a')), scratch / "saved"));
  const Outcome trained = run_program(gantry_program() + " train " + config);
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  for (const char* layout : {"", " --set parallel.pipeline=2"}) {
    Terminal terminal(gantry_program() + " generate --model " + (scratch / "saved") +
                          " --prompt \"see: a\" --max-new-tokens 1000000" + layout,
                      160);
    EXPECT_TRUE(terminal.wait_for("see: a" + std::string(40, 'a'))) << layout << terminal.printed();
    EXPECT_TRUE(terminal.runs()) << layout << terminal.printed();
    EXPECT_EQ(terminal.printed().find('\n'), std::string::npos) << layout << terminal.printed();
  }
}

}  // namespace
}  // namespace gantry::testing
