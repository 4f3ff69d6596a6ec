// gantry train --status: what a run serves while it trains.
#include <gtest/gtest.h>
#include <regex>

#include "../control/raw_socket.h"
#include "program.h"

namespace gantry::testing {
namespace {

const char* const kRun = R"(
model: {policy: gpt2, config: {n_embd: 16, n_layer: 2, n_head: 2, vocab_size: 256, n_positions: 16}}
parallel: {pipeline: 2}
data: {format: text, path: CORPUS, sequence_length: 16, batch_size: 4}
train: {steps: 1000000, log_every: 1}
)";

std::string configuration(const ScratchFolder& scratch) {
  const std::string corpus = scratch.write("corpus.txt", std::string(4096, 'a'));
  return scratch.write("run.yaml", std::regex_replace(kRun, std::regex("CORPUS"), corpus));
}

TEST(Status, IsServedWhileARunTrains) {
  const ScratchFolder scratch;
  const std::string log = scratch / "log", page = scratch / "page", metrics = scratch / "metrics";
  // Starts a run, waits for its first step, asks, and ends it.
  const Outcome outcome = run_program(
      gantry_program() + " train " + configuration(scratch) + " --status 0 >" + log + " 2>&1 &\nrun=$!\n" +
          "for i in $(seq 600); do grep -q '^step' " + log + " && break; sleep 0.1; done\n" +
          "url=$(sed -n 's/^status: //p' " + log + ")\n" +
          "python3 -c 'import sys, urllib.request as u; [open(f, \"wb\").write(u.urlopen(sys.argv[1] + p).read()) "
          "for p, f in ((\"\", sys.argv[2]), (\"metrics\", sys.argv[3]))]' $url " +
          page + " " + metrics + "\ncode=$?\nkill $run\nexit $code",
      100);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err << read_file(log);
  EXPECT_TRUE(std::regex_search(read_file(log), std::regex("status: http://127\\.0\\.0\\.1:[0-9]+/\n")));
  EXPECT_TRUE(std::regex_search(read_file(page), std::regex("Step [0-9]+ of 1000000"))) << read_file(page);
  const std::string text = read_file(metrics);
  for (const char* line : {"\ngantry_step [1-9][0-9]*\n", "\ngantry_loss [0-9.]+\n", "\ngantry_tokens_total [0-9]+\n",
                           "\ngantry_peak_memory_bytes\\{rank=\"1\"\\} [1-9][0-9]*\n"})
    EXPECT_TRUE(std::regex_search(text, std::regex(line))) << line << text;
  EXPECT_TRUE(text.ends_with("# EOF\n"));
}

TEST(Status, OnAPortInUseEndsTheRunAtItsStart) {
  const ScratchFolder scratch;
  const RawListener taken;
  const Outcome outcome =
      run_program(gantry_program() + " train " + configuration(scratch) + " --status " + std::to_string(taken.port()));
  EXPECT_EQ(outcome.exit_code, 6);
  EXPECT_NE(outcome.err.find("status: port " + std::to_string(taken.port()) + " of 127.0.0.1: Address already in use"),
            std::string::npos)
      << outcome.err;
}

TEST(Status, OnWhatIsNoPortIsRefused) {
  const Outcome outcome = run_program(gantry_program() + " train x.yaml --status 70000");
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_NE(outcome.err.find("--status"), std::string::npos);
}

}  // namespace
}  // namespace gantry::testing
