// `gantry schedule ...` as a user runs it. GANTRY_BIN names the program.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sstream>
#include <sys/wait.h>

namespace gantry::schedule {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Result {
  int exit_code = -1;
  std::string out;
  std::string error;
};

std::string read(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string temporary(const std::string& name) { return ::testing::TempDir() + "gantry_command_test_" + name; }

Result run(const std::string& arguments) {
  const char* program = std::getenv("GANTRY_BIN");
  const std::string command = program != nullptr ? program : GANTRY_BUILD_DIR "/bin/gantry";
  const std::string errors = temporary("stderr");
  FILE* pipe = popen((command + " schedule " + arguments + " 2>" + errors).c_str(), "r");
  Result result;
  if (pipe == nullptr) return result;
  std::array<char, 4096> buffer;
  for (std::size_t n = 0; (n = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) result.out.append(buffer.data(), n);
  const int status = pclose(pipe);
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  result.error = read(errors);
  std::remove(errors.c_str());
  return result;
}

std::string write_csv(const std::string& name, const std::string& text) {
  const std::string path = temporary(name + ".csv");
  std::ofstream(path) << text;
  return path;
}

TEST(ScheduleCommand, ShowPrintsRowsAndPyTorchsForm) {
  EXPECT_THAT(run("show 1f1b -p 2 -m 2").out, HasSubstr("rank 1 (stage 1): 1F0 1B0 1F1 1B1\n"));
  EXPECT_EQ(run("show gpipe -p 2 -m 2 --csv").out, "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n");
  EXPECT_THAT(run("show gpipe -p 2 -m 2 --csv --lowered").out, StartsWith("0F0,0SEND_F0,"));
}

TEST(ScheduleCommand, CheckProvesOrExitsWithFourAndOneLine) {
  const Result sound = run("check 1f1b -p 4 -m 8");
  EXPECT_EQ(sound.exit_code, 0) << sound.error;
  EXPECT_THAT(sound.out, AllOf(HasSubstr("64 computations"), HasSubstr("48 messages"), HasSubstr("no deadlock")));
  for (const std::string broken : {"0F0,0B0,0B0\n", "0F0,0Bx0\n", "0F1,0B1,0F0,0B0\n1F0,1B0,1F1,1B1\n", ""}) {
    const std::string path = write_csv("broken", broken);
    const Result result = run("check " + path);
    EXPECT_EQ(result.exit_code, 4) << broken;
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.error, StartsWith("error: "));
    EXPECT_EQ(std::count(result.error.begin(), result.error.end(), '\n'), 1) << result.error;
    std::remove(path.c_str());
  }
  EXPECT_EQ(run("check " + temporary("not_there.csv")).exit_code, 4);
}

TEST(ScheduleCommand, SimulatePrintsTheAgreedJson) {
  const Result result = run("simulate 1f1b -p 4 -m 8 --times 1,1,1,0 --json");
  EXPECT_EQ(nlohmann::json::parse(result.out), nlohmann::json({{"makespan_global", 33.0},
                                                               {"makespan_max_rank", 33.0},
                                                               {"bubble_rate", 9.0 / 33},
                                                               {"peak_activations", {4, 3, 2, 1}}}));
  EXPECT_THAT(run("simulate 1f1b -p 4 -m 8").out, HasSubstr("27.27%"));
}

TEST(ScheduleCommand, SimulateTakesTimesByStage) {
  const auto result = run("simulate gpipe -p 2 -m 1 --stage-times 1,1,1,0.5/2,2,2,0 --json");
  EXPECT_EQ(nlohmann::json::parse(result.out)["makespan_global"], 1 + 0.5 + 2 + 4 + 2) << result.error;
  EXPECT_EQ(run("simulate gpipe -p 2 -m 1 --stage-times 1,1,1,0.5").exit_code, 2);
  EXPECT_EQ(run("simulate gpipe -p 2 -m 1 --stage-times 1,1,1/1,1,1").exit_code, 2);
}

TEST(ScheduleCommand, OffloadIsShownSimulatedAndDrawn) {
  const std::string sizes = " gpipe -p 1 -m 4 --offload both";
  EXPECT_THAT(run("show" + sizes + " --csv").out, HasSubstr("0F2,0OFFLOAD2,0RELOAD0,0F3"));
  const auto json = nlohmann::json::parse(run("simulate" + sizes + " --host-bandwidth 2 --state 3 --json").out);
  EXPECT_EQ(json["peak_memory"], nlohmann::json({5.0}));
  EXPECT_THAT(run("simulate" + sizes + " --state 3").out, HasSubstr("memory held at most         "));
  EXPECT_THAT(run("draw" + sizes + " --host-bandwidth 2").out, HasSubstr("activations from the host"));
  EXPECT_EQ(run("show gpipe -p 1 -m 4 --offload all").exit_code, 2);
}

TEST(ScheduleCommand, AConfigurationSaysAllOfIt) {
  const std::string path = temporary("step.yaml");
  const std::string model =
      "model: {policy: gpt2, config: {n_embd: 64, n_layer: 4, n_head: 4, n_positions: 128, vocab_size: 500}}\n"
      "data: {format: tokens, path: x, sequence_length: 128, batch_size: 8}\nparallel: {pipeline: 2}\n"
      "train: {offload: none}\n";
  std::ofstream(path) << model << "schedule: {name: gpipe, recompute: auto, memory_limit: 12 MiB}\n";
  const Result shown = run("show " + path);
  EXPECT_THAT(shown.out, AllOf(HasSubstr("gpipe: 2 ranks, 2 stages, 4 microbatches"), HasSubstr("recomputed: "),
                               HasSubstr("pipeline rank 1: ")))
      << shown.error;
  const auto json = nlohmann::json::parse(run("simulate " + path + " --json").out);
  for (const double bytes : json["recompute"]["memory_bytes"]) EXPECT_LE(bytes, 12 << 20);
  EXPECT_EQ(run("show " + path + " -p 2").exit_code, 2);
  std::ofstream(path) << model << "schedule: {name: gpipe, recompute: auto, memory_limit: 1 MiB}\n";
  EXPECT_THAT(run("show " + path).error, HasSubstr("with any recomputation"));
  std::remove(path.c_str());
}

TEST(ScheduleCommand, GroupSizeIsMegatrons) {
  EXPECT_THAT(run("show interleaved_1f1b -p 2 -m 8 -v 2 --group-size 4 --csv").out, StartsWith("0F0,0F1,0F2,0F3,2F0"));
  EXPECT_EQ(run("show interleaved_1f1b -p 2 -m 8 -v 2 --group-size 1").exit_code, 3);
  EXPECT_EQ(run("show interleaved_1f1b -p 2 -m 8 -v 2 --group-size 0").exit_code, 2);
  EXPECT_EQ(run("show 1f1b -p 2 -m 8 --group-size 4").exit_code, 3);
}

TEST(ScheduleCommand, FilesSayTheirSizesThemselves) {
  const std::string path = write_csv("sound", run("show 1f1b -p 2 -m 3 --csv --lowered").out);
  EXPECT_THAT(run("check " + path).out, HasSubstr("2 ranks, 2 stages, 3 microbatches"));
  EXPECT_EQ(run("simulate " + path + " --json").out, run("simulate 1f1b -p 2 -m 3 --json").out);
  EXPECT_EQ(run("show " + path + " --csv").out, run("show 1f1b -p 2 -m 3 --csv").out);
  EXPECT_EQ(run("show " + path + " -p 2 -m 3 -v 1 --csv").exit_code, 0);
  const Result other = run("show " + path + " -p 4");
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.error, HasSubstr("has 2"));
  std::remove(path.c_str());
}

TEST(ScheduleCommand, DrawWritesEachFormat) {
  EXPECT_THAT(run("draw 1f1b -p 2 -m 2").out, HasSubstr("rank 1 |....F0--B0------"));
  EXPECT_THAT(run("draw 1f1b -p 2 -m 2 --format svg").out, StartsWith("<svg"));
  EXPECT_NO_THROW(nlohmann::json::parse(run("draw 1f1b -p 2 -m 2 --format trace").out));
  const std::string path = temporary("drawing.svg");
  EXPECT_EQ(run("draw gpipe -p 2 -m 2 --format svg --output " + path).out, "");
  EXPECT_THAT(read(path), StartsWith("<svg"));
  std::remove(path.c_str());
  const Result unwritable = run("draw gpipe -p 2 -m 2 --output " + temporary("no_folder") + "/x.svg");
  EXPECT_EQ(unwritable.exit_code, 6);
  EXPECT_THAT(unwritable.error, HasSubstr("cannot be written"));
}

TEST(ScheduleCommand, BadArgumentsAreRefusedWithTheirExitCodes) {
  EXPECT_EQ(run("show 1f1b -p 2").exit_code, 2);
  EXPECT_EQ(run("show 1f1b -m 2").exit_code, 2);
  EXPECT_EQ(run("show 1f1b -p 2 -m 2 -v 0").exit_code, 2);
  EXPECT_EQ(run("show 1f1b -p 0 -m 2").exit_code, 3);
  EXPECT_EQ(run("show 1f1b -p 2 -m 2 -v 2").exit_code, 3);
  EXPECT_EQ(run("check nothing_like_it -p 2 -m 2").exit_code, 3);
  EXPECT_EQ(run("simulate 1f1b -p 2 -m 2 --memory-limit 3").exit_code, 3);
  for (const std::string times : {"1,1,1", "1,1,1,0,0", "1,1,x,0", "1,1,,0", "-1,1,1,0", "nan,1,1,0", "inf,1,1,0",
                                  "1e300,1,1,0", "0,0,0,1", "''", "1 1 1 0"})
    EXPECT_EQ(run("simulate 1f1b -p 2 -m 2 --times=" + std::string("\"") + times + "\"").exit_code, 2) << times;
}

}  // namespace
}  // namespace gantry::schedule
