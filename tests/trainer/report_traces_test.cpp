// The files of a run with a profile: traces of each rank and of
// all ranks, joined messages, TensorBoard's scalars, a report.
#include <filesystem>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "program.h"

namespace gantry::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using Json = nlohmann::json;

std::set<std::string> files_in(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename().string());
  return names;
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

// Checks the fields that Chrome's trace format requires for each kind of event that Gantry writes.
void expect_schema(const Json& trace) {
  ASSERT_TRUE(trace.at("traceEvents").is_array());
  for (const auto& event : trace["traceEvents"]) {
    const std::string kind = event.at("ph");
    ASSERT_TRUE(event.at("name").is_string() && event.at("pid").is_number_integer()) << event;
    ASSERT_THAT(kind, ::testing::AnyOf("M", "X", "s", "f")) << event;
    if (kind == "M") continue;
    ASSERT_TRUE(event.at("ts").is_number() && event["ts"] >= 0 && event.at("tid").is_number_integer()) << event;
    if (kind == "X") ASSERT_GE(event.at("dur"), 0) << event;
    if (kind != "X") ASSERT_TRUE(event.at("id").is_number_unsigned()) << event;
  }
}

// Every message has one send and one receive, on two ranks, and the receive is not before the send.
void expect_joined(const Json& trace, int messages) {
  std::map<std::uint64_t, Json> sends, receives;
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] == "s") EXPECT_TRUE(sends.emplace(event["id"], event).second) << event;
    if (event["ph"] == "f") EXPECT_TRUE(receives.emplace(event["id"], event).second) << event;
  }
  EXPECT_EQ(static_cast<int>(sends.size()), messages);
  ASSERT_EQ(sends.size(), receives.size());
  for (const auto& [id, send] : sends) {
    ASSERT_TRUE(receives.contains(id)) << send;
    EXPECT_NE(send["pid"], receives[id]["pid"]);
    EXPECT_EQ(receives[id]["bp"], "e");
    EXPECT_LE(send["ts"], receives[id]["ts"]);
  }
}

TEST(Traces, E11TwoCyclesGiveTwoTracesARankAndTwoOfAll) {
  const ScratchFolder scratch;
  const std::string text = scratch.write("text.txt", std::string(400, 'a') + std::string(400, 'b'));
  const std::string config = scratch.write(
      "train.yaml",
      fmt::format(
          "model: {{policy: gpt2, config: {{n_embd: 16, n_layer: 2, n_head: 2, vocab_size: 256, n_positions: 16}}}}\n"
          "parallel: {{tensor: 2, pipeline: 2}}\nschedule: {{microbatches: 3}}\n"
          "data: {{format: text, path: \"{}\", sequence_length: 8, batch_size: 6}}\ntrain: {{steps: 10}}\n"
          "profile: {{wait: 1, warmup: 1, active: 3, repeat: 2}}\noutput: {}\n",
          text, scratch / "run"));
  const Outcome run = run_program(gantry_program() + " train " + config);
  ASSERT_EQ(run.exit_code, 0) << run.err;
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_EQ(files_in(fmt::format("{}/tensorboard/rank_{}", scratch / "run", rank)),
              (std::set<std::string>{"cycle_0.pt.trace.json", "cycle_1.pt.trace.json"}));
  EXPECT_EQ(count(run.out, "own ms"), 2u) << run.out;
  EXPECT_THAT(run.out, HasSubstr("aten::"));
  for (const int cycle : {0, 1}) {
    const Json trace = Json::parse(read_file(fmt::format("{}/profile-{}.trace.json", scratch / "run", cycle)));
    expect_schema(trace);
    // 3 steps, 3 microbatches, forward and backward between two stages, 2 tp ranks.
    expect_joined(trace, 3 * 3 * 2 * 2);
    std::set<int> ranks;
    std::map<std::string, int> kinds;
    for (const auto& event : trace["traceEvents"]) {
      ranks.insert(event["pid"].get<int>());
      if (event["ph"] == "X") ++kinds[event["cat"]];
      if (event["name"] == "gantry::all_reduce") EXPECT_GT(event["args"]["bytes"], 0) << event;
    }
    EXPECT_EQ(ranks, (std::set<int>{0, 1, 2, 3}));
    EXPECT_EQ(kinds["action"], 3 * 3 * 2 * 4);  // forwards and backwards
    EXPECT_EQ(kinds["message"], 2 * 3 * 3 * 2 * 2);
    EXPECT_GT(kinds["operator"], 100);
    EXPECT_GT(kinds["communication"], 10);
  }
  int event_files = 0;
  for (const auto& name : files_in(scratch / "run/tensorboard"))
    event_files += name.starts_with("events.out.tfevents.");
  EXPECT_EQ(event_files, 1);

  const Json report = Json::parse(read_file(scratch / "run/report.json"));
  EXPECT_EQ(report["mesh"]["ranks"].size(), 4u);
  EXPECT_EQ(report["timeline"]["step"], 10);
  EXPECT_EQ(report["timeline"]["measured"]["ranks"].size(), 2u);
  EXPECT_EQ(report["timeline"]["measured"]["ranks"][0].size(), 6u);
  EXPECT_EQ(report["stages"][1], (Json{{"stage", 1}, {"pipeline_rank", 1}, {"first_layer", 1}, {"layers", 1}}));
  EXPECT_GT(report["operators"].size(), 5u);
  for (const auto& rank : report["memory"]) EXPECT_EQ(rank["state_bytes"], 16 * rank["parameters"].get<int>());
  std::map<std::string, Json> axes;
  for (const auto& row : report["communication"])
    axes[row["axis"].get<std::string>() + " " + row["operation"].get<std::string>()] = row;
  // In each step a rank sends 3 messages of [2, 8, 16] float32. Once in the ten steps it also sends the shape
  // of each first message.
  ASSERT_TRUE(axes.contains("pp send")) << report["communication"];
  EXPECT_GE(axes["pp send"]["bytes_per_step"], 3 * 2 * 8 * 16 * 4);
  EXPECT_LT(axes["pp send"]["bytes_per_step"], 3 * 2 * 8 * 16 * 4 + 200);
  EXPECT_TRUE(axes.contains("tp all_reduce")) << report["communication"];
  EXPECT_THAT(read_file(scratch / "run/report.html"), HasSubstr("<!doctype html>"));
}

// A run that ends before its first active step prints a warning. A run that ends within a cycle writes the
// steps so far. A resumed run keeps the earlier traces and continues their numbers.
TEST(Traces, NoCycleIsLostWithoutAWord) {
  const ScratchFolder scratch;
  const std::string config = scratch.write(
      "train.yaml",
      fmt::format("model: {{policy: gpt2, config: {{n_embd: 16, n_layer: 2, n_head: 2, vocab_size: 256, n_positions: "
                  "16}}}}\nparallel: {{pipeline: 2}}\n"
                  "data: {{format: text, path: \"{}\", sequence_length: 8, batch_size: 4}}\ntrain: {{steps: 2}}\n"
                  "profile: {{wait: 1, warmup: 1, active: 2, repeat: 0}}\noutput: {}\n"
                  "checkpoint: {{path: {}, resume: auto}}\n",
                  scratch.write("text.txt", std::string(400, 'a')), scratch / "run", scratch / "c"));
  const auto train = [&](const std::string& more) { return run_program(gantry_program() + " train " + config + more); };
  const Outcome brief = train("");
  EXPECT_EQ(brief.exit_code, 0) << brief.err;
  EXPECT_THAT(brief.err, HasSubstr("warning: profile: the run ended before its first active step: wait 1 + warmup 1 + "
                                   "1 = 3 steps, but it had 2"));
  const Outcome broken_off = train(" --set train.steps=5");
  EXPECT_EQ(broken_off.err, "");
  EXPECT_THAT(broken_off.out, HasSubstr("profile-0.trace.json (1 of 2 active steps: the run is over)"));
  const std::string first = read_file(scratch / "run/profile-0.trace.json");
  const Outcome full = train(" --set train.steps=9");
  EXPECT_EQ(full.err, "");
  EXPECT_THAT(full.out, HasSubstr("profile-1.trace.json\n"));
  EXPECT_EQ(read_file(scratch / "run/profile-0.trace.json"), first);
  EXPECT_NE(read_file(scratch / "run/profile-1.trace.json"), first);
  EXPECT_TRUE(std::filesystem::exists(scratch / "run/tensorboard/rank_1/cycle_1.pt.trace.json"));
  std::string quiet = read_file(config);
  quiet.erase(quiet.find("output:"), quiet.find("checkpoint:") - quiet.find("output:"));
  const Outcome untraced =
      run_program(gantry_program() + " train " + scratch.write("quiet.yaml", quiet) + " --set train.steps=13");
  EXPECT_THAT(untraced.out, HasSubstr("profile: no trace is written; set output")) << untraced.err;
}

TEST(Traces, E12OnlyTheFirstRankOfTheExampleSpeaks) {
  const ScratchFolder scratch;
  const Outcome run =
      run_program(std::string(GANTRY_BUILD_DIR) + "/examples/example_sequence_parallel " + scratch.path());
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(count(run.out, "Sequence Parallel training starting..."), 1u);
  for (int step = 0; step < 10; ++step) EXPECT_EQ(count(run.out, fmt::format("iter {} completed\n", step)), 1u);
  EXPECT_EQ(count(run.out, "completed!"), 1u);
  for (const int rank : {0, 1})
    for (const auto& name : files_in(fmt::format("{}/tensorboard/rank_{}", scratch.path(), rank)))
      expect_schema(Json::parse(read_file(fmt::format("{}/tensorboard/rank_{}/{}", scratch.path(), rank, name))));
  EXPECT_EQ(files_in(scratch / "tensorboard/rank_1").size(), 2u);
}

}  // namespace
}  // namespace gantry::testing
