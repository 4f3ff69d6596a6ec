// A custom program that trains like the README's
// (examples/quickstart.cpp): killed, stopped and started again.
#include <csignal>
#include <filesystem>

#include "background.h"
#include "resume_case.h"

namespace gantry::testing {
namespace {

constexpr int kProgramSteps = 40;

// The configuration of a run from a Hugging Face model, with saves and evaluations during the run.
std::string write_whole_run(const ScratchFolder& scratch) {
  const std::string golden = std::string(GANTRY_SOURCE_DIR) + "/tests/golden/gpt2";
  return scratch.write(
      "whole.yaml",
      fmt::format("model: {{path: {0}}}\nparallel: {{tensor: 2, pipeline: 2}}\nschedule: {{microbatches: 2}}\n"
                  "data: {{format: tokens, path: {0}/tokens.bin, sequence_length: 32, batch_size: 8}}\n"
                  "evaluation: {{path: {0}/tokens.bin, every: 15, batches: 2}}\ntrain: {{steps: {1}}}\n"
                  "lr_schedule: {{name: cosine, warmup_steps: 5}}\ncheckpoint: {{path: c, every: 5}}\noutput: o\n"
                  "comm: {{threads_per_rank: 1}}\n",
                  golden, kProgramSteps));
}

std::string program_line(const ScratchFolder& scratch, const std::string& name, const std::string& sets = "") {
  return fmt::format("{}/examples/example_quickstart {} output={} checkpoint.path={}/c {}", GANTRY_BUILD_DIR,
                     scratch / "whole.yaml", scratch / name, scratch / name, sets);
}

TEST(OwnProgram, DoesAllThatItsConfigurationSays) {
  const ScratchFolder scratch;
  write_whole_run(scratch);
  const Outcome run = run_program(program_line(scratch, "run"));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(lines_of(scratch, "run"), kProgramSteps + 3) << "steps and evaluations";
  EXPECT_NE(run.out.find("eval_loss"), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("best loss: "), std::string::npos) << run.out;
  for (const char* file : {"report.html", "report.json", "config.yaml", "timeline.svg", "c/step-000005/manifest.json",
                           "c/step-000040/manifest.json"})
    EXPECT_TRUE(std::filesystem::exists(scratch / (std::string("run/") + file))) << file;
}

TEST(OwnProgram, GoesOnAfterAKillAndAStopAsIfNothingHadHappened) {
  const ScratchFolder scratch;
  write_whole_run(scratch);
  ASSERT_EQ(run_program(program_line(scratch, "whole")).exit_code, 0);
  for (const int number : {SIGKILL, SIGTERM}) {
    const std::string name = fmt::format("signal{}", number);
    const std::string line = program_line(scratch, name, "checkpoint.resume=auto");
    {
      Background run(line);
      ASSERT_TRUE(run.wait_until([&] { return lines_of(scratch, name) >= 8; })) << run.err();
      run.signal(number);
      EXPECT_EQ(run.wait().exit_code, number == SIGKILL ? 128 + SIGKILL : 75);
    }
    const Outcome resumed = run_program(line);
    ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
    EXPECT_NE(resumed.out.find("resuming from "), std::string::npos) << resumed.out;
    EXPECT_EQ(losses_of(scratch, name), losses_of(scratch, "whole")) << name;
  }
}

TEST(OwnProgram, GoesOnFromANamedStepAndWhereARestartHasSaved) {
  const ScratchFolder scratch;
  write_whole_run(scratch);
  ASSERT_EQ(run_program(program_line(scratch, "run", "train.steps=10")).exit_code, 0);
  const Outcome named =
      run_program(program_line(scratch, "other", "checkpoint.resume=" + scratch / "run/c/step-000005"));
  ASSERT_EQ(named.exit_code, 0) << named.err;
  EXPECT_NE(named.out.find("run/c/step-000005 at step 5"), std::string::npos) << named.out;
  const Outcome restarted = run_program("GANTRY_RESTART=1 " + program_line(scratch, "run"));
  ASSERT_EQ(restarted.exit_code, 0) << restarted.err;
  EXPECT_NE(restarted.out.find("run/c/step-000010 at step 10"), std::string::npos) << restarted.out;
}

TEST(OwnProgram, PrintsWhatIsWrongAndReturnsItsCode) {
  const ScratchFolder scratch;
  write_whole_run(scratch);
  const std::pair<const char*, int> wrong[] = {
      {"train.steps=0", 3}, {"data.path=" GANTRY_SOURCE_DIR "/none", 4}, {"optimizer.lr=1.0e+30", 8}};
  for (const auto& [set, exit_code] : wrong) {
    const Outcome run = run_program(program_line(scratch, "run", set));
    EXPECT_EQ(run.exit_code, exit_code) << set << run.err;
    EXPECT_TRUE(run.err.starts_with("error: ")) << set << run.err;
    EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
  }
  const Outcome none = run_program(std::string(GANTRY_BUILD_DIR) + "/examples/example_quickstart");
  EXPECT_EQ(none.exit_code, 2);
}

}  // namespace
}  // namespace gantry::testing
