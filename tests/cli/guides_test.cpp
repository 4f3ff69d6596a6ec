// The commands of the guides on launching and plugins.
#include <algorithm>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "program.h"

namespace gantry::testing {
namespace {

using ::testing::HasSubstr;

std::string guide_config(const ScratchFolder& scratch, const std::string& extra) {
  const std::string text = scratch.write("text.txt", std::string(400, 'a') + std::string(400, 'b'));
  return fmt::format(
      "model: {{policy: gpt2, config: {{n_embd: 16, n_layer: 2, n_head: 2, vocab_size: 256, n_positions: 16}}}}\n"
      "data: {{format: text, path: \"{}\", sequence_length: 8, batch_size: 6}}\ntrain: {{steps: 2}}\n{}",
      text, extra);
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(Acceptance, B9OneRankPrintsAndMemoryIsOfEveryRank) {
  const ScratchFolder scratch;
  const std::string config = scratch.write("train.yaml", guide_config(scratch, "parallel: {tensor: 2, pipeline: 2}\n"));
  const Outcome run = run_program(gantry_program() + " train " + config + " --set output=" + (scratch / "out"));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(count(run.out, "step 1"), 1u) << run.out;
  const auto line = run.out.substr(run.out.find("peak memory of tensors: "));
  const auto numbers = line.substr(0, line.find(" MB per rank"));
  ASSERT_LT(numbers.size(), line.size()) << line;
  EXPECT_EQ(std::count(numbers.begin(), numbers.end(), ','), 3) << line;
  EXPECT_THAT(line, HasSubstr("most "));
  EXPECT_THAT(read_file(scratch / "out/metrics.jsonl"), HasSubstr("\"peak_memory_bytes\":["));
}

TEST(Acceptance, B10TensorParallelismLeavesTheGlobalBatch) {
  const ScratchFolder scratch;
  const std::string config = scratch.write("train.yaml", guide_config(scratch, "parallel: {tensor: 2}\n"));
  const Outcome alone = run_program(gantry_program() + " config " + config);
  EXPECT_THAT(alone.out, HasSubstr("per step: 6 samples (48 tokens), 6 per replica"));
  const Outcome replicas = run_program(gantry_program() + " config " + config + " --set parallel.data=2");
  EXPECT_THAT(replicas.out, HasSubstr("per step: 6 samples (48 tokens), 3 per replica"));
}

#ifdef GANTRY_MPIRUN
TEST(Acceptance, E1TooFewRanksAreCountedOnceWithAnExitCode) {
  const ScratchFolder scratch;
  const std::string config = scratch.write("train.yaml", guide_config(scratch, "parallel: {tensor: 2}\n"));
  const Outcome run = run_program(std::string(GANTRY_MPIRUN) + " -n 1 " + gantry_program() + " train " + config, 60);
  EXPECT_EQ(run.exit_code, 3) << run.err;
  EXPECT_THAT(run.err, HasSubstr("tensor 2 = 2 does not divide the 1 ranks of this job"));
}
#endif

TEST(Libraries, WrongOnesAreRefusedForWhatTheyAre) {
  const ScratchFolder scratch;
  const std::string config = scratch.write("train.yaml", guide_config(scratch, ""));
  const std::string text = scratch.write("text.so", "no library");
  const std::string build = GANTRY_BUILD_DIR;
  for (const auto& [library, said] : std::vector<std::pair<std::string, std::string>>{
           {scratch / "missing.so", "cannot open shared object file"},
           {text, "file too short"},
           {"libc.so.6", "the library does not export gantry_plugin_library"},
           {build + "/tests/libold_plugin.so",
            "was built for Gantry 0.0.9, LibTorch 2.5.0, C++ ABI 1014; expected Gantry"}}) {
    const Outcome run = run_program(gantry_program() + " train " + config + " --set libraries=[" + library + "]");
    EXPECT_EQ(run.exit_code, 3) << library << run.err;
    EXPECT_THAT(run.err, HasSubstr(said)) << library;
    EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
  }
}

}  // namespace
}  // namespace gantry::testing
