// The data that the report's page receives, and that none of it can end its script element.
#include <filesystem>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gantry/core/error.h"
#include "gantry/trainer/report/run_reader.h"
#include "program.h"

namespace gantry::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

std::string step_line(int step, const std::string& loss = "2.5", double norm = 1) {
  return fmt::format("{{\"step\":{},\"loss\":{},\"grad_norm\":{},\"lr\":0.1,\"peak_memory_bytes\":[7,8]}}\n", step,
                     loss, norm);
}

constexpr const char* kReportedConfig = "model: {policy: gpt2}\ntrain: {steps: 9}\n";

TEST(RunReader, TurnsLinesIntoColumns) {
  const ScratchFolder run;
  run.write("metrics.jsonl",
            step_line(1) + "{\"step\":1,\"eval_loss\":3.5,\"perplexity\":33.1}\n" + step_line(2, "null"));
  run.write("config.yaml", kReportedConfig);
  const Json data = RunReader(run.path()).data(false);
  EXPECT_EQ(data["metrics"]["step"], (Json{1, 2}));
  EXPECT_EQ(data["metrics"]["loss"], (Json{2.5, nullptr}));
  EXPECT_EQ(data["metrics"]["bubble"], (Json{nullptr, nullptr}));  // a run of an older version
  EXPECT_EQ(data["evaluation"]["loss"], Json{3.5});
  EXPECT_EQ(data["peak_memory_bytes"], (Json{7, 8}));
  EXPECT_EQ(data["steps"], 9);
  EXPECT_EQ(data["config"], kReportedConfig);
  EXPECT_TRUE(data["run"].is_null());
}

TEST(RunReader, HasTheRewardsOfPreferences) {
  const ScratchFolder run;
  run.write("metrics.jsonl", step_line(1) +
                                 "{\"step\":2,\"loss\":0.7,\"rewards/chosen\":0.5,\"rewards/rejected\":-0.25,"
                                 "\"rewards/margins\":0.75}\n");
  const Json rewards = RunReader(run.path()).data(false)["rewards"];
  EXPECT_EQ(rewards["step"], Json{2});
  EXPECT_EQ(rewards["rewards/chosen"], Json{0.5});
  EXPECT_EQ(rewards["rewards/rejected"], Json{-0.25});
  EXPECT_EQ(rewards["rewards/margins"], Json{0.75});
  EXPECT_EQ(rewards["rewards/accuracies"], Json{nullptr});  // judged completions have none
}

TEST(RunReader, HasTheImagesOfSteps) {
  const ScratchFolder run;
  run.write("metrics.jsonl", step_line(1) + "{\"step\":2,\"loss\":0.7,\"images\":5}\n");
  const Json images = RunReader(run.path()).data(false)["images"];
  EXPECT_EQ(images["step"], Json{2});
  EXPECT_EQ(images["images"], Json{5});
}

TEST(RunReader, ShowsOthersNoPathsAndSecretsOfALiveRun) {
  const ScratchFolder run;
  run.write(
      "config.yaml",
      "model: {policy: gpt2, path: /secret/m, config: {n_layer: 2, note: /secret/n, hub_access_token: hf_x, deep: "
      "[{a: /secret/o}], activation_function: gelu_new}}\n"
      "schedule: {name: /secret/s.csv}\n"
      "data: {format: text, sources: [{path: /secret/a, weight: 1}], tokenizer: /secret/t}\n"
      "evaluation: {path: /secret/e, every: 3}\ncheckpoint: {path: /secret/c, resume: /secret/r}\n"
      "output: /secret/o\nlibraries: [/secret/l.so]\ncomm: {interface: 10.1.2.3}\n");
  const Json live = RunReader(run.path()).data(true);
  for (const char* hidden : {"/secret", "hf_x", "10.1.2.3"}) EXPECT_THAT(live.dump(), Not(HasSubstr(hidden)));
  EXPECT_THAT(live.dump(), Not(HasSubstr(run.path())));
  for (const char* shown : {"gelu_new", "n_layer", "every: 3", "format: text", "weight: 1"})
    EXPECT_THAT(live["config"].get<std::string>(), HasSubstr(shown));
  run.write("config.yaml", "of another version: /secret\n");
  EXPECT_EQ(RunReader(run.path()).data(true)["config"], "");
}

TEST(RunReader, PassesOverLinesThatAreNone) {
  const ScratchFolder run;
  run.write("metrics.jsonl", step_line(1) + step_line(2, "NaN") + "[1]\n\n" + step_line(3) + "{\"step\":4,\"lo");
  const Json data = RunReader(run.path()).data(false);
  EXPECT_EQ(data["metrics"]["step"], (Json{1, 3}));
  EXPECT_EQ(data["skipped_lines"], 3);
  EXPECT_EQ(data["steps"], 0);  // without a config.yaml
}

TEST(RunReader, FollowsALiveRunAndWaitsForWholeLines) {
  const ScratchFolder run;
  RunReader reader(run.path());
  EXPECT_TRUE(reader.data(true)["metrics"]["step"].empty());  // before the first step
  const std::string full = step_line(1) + step_line(2);
  run.write("metrics.jsonl", full.substr(0, full.size() - 9));
  EXPECT_EQ(reader.data(true)["metrics"]["step"], Json{1});
  run.write("metrics.jsonl", full + step_line(3));
  const Json data = reader.data(true);
  EXPECT_EQ(data["metrics"]["step"], (Json{1, 2, 3}));
  EXPECT_EQ(data["skipped_lines"], 0);
  EXPECT_EQ(data["live"], true);
}

// Another run starts in the directory that was read. Its file is shorter, longer, or of the same length.
TEST(RunReader, RestartsIfAnotherRunBegins) {
  for (const int steps : {0, 1, 2, 3}) {
    const ScratchFolder run;
    RunReader reader(run.path());
    run.write("metrics.jsonl", step_line(1, "7.5") + step_line(2, "7.5"));
    EXPECT_EQ(reader.data(true)["metrics"]["loss"], (Json{7.5, 7.5}));
    std::string lines;
    for (int step = 1; step <= steps; ++step) lines += step_line(step);
    run.write("metrics.jsonl", lines);
    const Json losses(static_cast<std::size_t>(steps), 2.5);
    EXPECT_EQ(reader.data(true)["metrics"]["loss"], losses) << steps;
    run.write("metrics.jsonl", lines + "{\"step\":9,\"eval_loss\":3.5}\n");
    const Json more = reader.data(true);
    EXPECT_EQ(more["metrics"]["loss"], losses) << steps;
    EXPECT_EQ(more["evaluation"]["step"], Json{9}) << steps;
    EXPECT_EQ(more["skipped_lines"], 0) << steps;
  }
}

// A run with a checkpoint every 2 steps fails in step 4. The
// resumed run keeps two lines and writes the others again.
TEST(RunReader, FollowsARunThatIsResumed) {
  const ScratchFolder run;
  RunReader reader(run.path());
  const std::string kept = step_line(1, "1.5") + step_line(2, "2.5");
  run.write("metrics.jsonl", kept + step_line(3, "3.5"));
  EXPECT_EQ(reader.data(true)["metrics"]["step"], (Json{1, 2, 3}));
  run.write("metrics.jsonl", kept + step_line(3, "4.5") + step_line(4, "5.5"));
  EXPECT_EQ(reader.data(true)["metrics"]["loss"], (Json{1.5, 2.5, 4.5, 5.5}));
}

TEST(RunReader, ThinsLongRunsButKeepsTheirSpikes) {
  const ScratchFolder run;
  std::string lines;
  for (int step = 1; step <= 20000; ++step)
    lines += step_line(step, step == 7001 ? "99" : "2", step == 12003 ? 1000 : 1);
  run.write("metrics.jsonl", lines);
  const Json metrics = RunReader(run.path()).data(false)["metrics"];
  EXPECT_LT(metrics["step"].size(), 5000u);
  EXPECT_EQ(metrics["step"].back(), 20000);
  EXPECT_TRUE(std::is_sorted(metrics["step"].begin(), metrics["step"].end()));
  EXPECT_EQ(*std::max_element(metrics["loss"].begin(), metrics["loss"].end()), 99);
  EXPECT_EQ(*std::max_element(metrics["grad_norm"].begin(), metrics["grad_norm"].end()), 1000);
}

// A million steps took 2 GB as JSON.
TEST(ThinnedRows, MemoryDoesNotGrowWithTheRun) {
  ThinnedRows rows({"step", "loss"}, {"loss"});
  for (int step = 1; step <= 50000; ++step) {
    rows.add({{"step", step}, {"loss", step == 123 ? 99.0 : 1.0}});
    ASSERT_LE(rows.kept(), ThinnedRows::kMost);
    if (step == 4000) EXPECT_EQ(rows.kept(), 4000u) << "all of them, while there is room";
  }
  EXPECT_GT(rows.kept(), ThinnedRows::kMost / 4);
  const Json columns = rows.columns();
  EXPECT_EQ(columns["step"].size(), rows.kept());
  EXPECT_EQ(columns["step"].back(), 50000);
  EXPECT_TRUE(std::is_sorted(columns["step"].begin(), columns["step"].end()));
  const auto spike = std::find(columns["loss"].begin(), columns["loss"].end(), Json(99.0));
  ASSERT_NE(spike, columns["loss"].end());
  EXPECT_EQ(columns["step"][static_cast<std::size_t>(spike - columns["loss"].begin())], 123);
}

TEST(RunReader, ALineWithoutEndTakesNoMemory) {
  const ScratchFolder run;
  run.write("metrics.jsonl", step_line(1));
  std::filesystem::resize_file(run / "metrics.jsonl", std::uintmax_t{40} << 20);  // zeros after the first line
  const Json data = RunReader(run.path()).data(false);
  EXPECT_EQ(data["metrics"]["step"], Json{1});
  EXPECT_EQ(data["skipped_lines"], 1);
}

TEST(RunReader, RefusesFoldersAndFilesThatAreNone) {
  const ScratchFolder run;
  EXPECT_THROW(RunReader(run.path()).data(false), InputError);
  run.write("metrics.jsonl", step_line(1));
  for (const char* text : {"{", "[]", "{\"format\":2}", "{\"format\":1,\"mesh\":{}}"}) {
    run.write("report.json", text);
    EXPECT_THROW(RunReader(run.path()).data(false), InputError) << text;
  }
}

TEST(ReportPage, NothingFromOutsideEndsItsElement) {
  const ScratchFolder run;
  const std::string attack = "</script><script>alert(1)</script><!--";
  run.write("metrics.jsonl", step_line(1));
  run.write("config.yaml", "# " + attack + "@@STYLE@@\xff\n");
  Json data = RunReader(run.path()).data(false);
  data["name"] = attack;
  const std::string page = report_page(data);
  EXPECT_THAT(page, Not(HasSubstr("<script>alert")));
  EXPECT_THAT(page, HasSubstr("\\u003c/script>\\u003cscript>alert(1)"));
  EXPECT_THAT(page, HasSubstr("<title>&lt;/script>"));
  EXPECT_THAT(page, HasSubstr("@@STYLE@@"));  // text of the configuration, not a placeholder
  const auto begin = page.find("id=\"data\">") + 10;
  EXPECT_EQ(Json::parse(page.substr(begin, page.find("</script>", begin) - begin))["name"], attack);
}

TEST(ReportPage, NeedsNothingElse) {
  const ScratchFolder run;
  run.write("metrics.jsonl", step_line(1));
  const std::string page = report_page(RunReader(run.path()).data(false));
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
  for (const char* outside : {"src=\"", "href=\"http", "@import", "url(http", "//cdn"})
    EXPECT_THAT(page, Not(HasSubstr(outside)));
}

TEST(ReportCommand, WritesToTheGivenPath) {
  const ScratchFolder run;
  run.write("metrics.jsonl", step_line(1));
  const Outcome extra = run_program(gantry_program() + " report " + run.path());
  EXPECT_EQ(extra.exit_code, 0) << extra.err;
  EXPECT_EQ(extra.out, "report: " + run.path() + "/report.html\n");
  EXPECT_THAT(read_file(run / "report.html"), HasSubstr("<!doctype html>"));
  const Outcome elsewhere =
      run_program(fmt::format("{} report {} --output {}", gantry_program(), run.path(), run / "x.html"));
  EXPECT_EQ(elsewhere.exit_code, 0) << elsewhere.err;
  EXPECT_THAT(read_file(run / "x.html"), HasSubstr("<!doctype html>"));
  const Outcome none = run_program(gantry_program() + " report /nowhere");
  EXPECT_EQ(none.exit_code, 4);
  EXPECT_THAT(none.err, HasSubstr("metrics.jsonl: the file cannot be read"));
  const Outcome full = run_program(fmt::format("{} report {} --output /proc/none", gantry_program(), run.path()));
  EXPECT_EQ(full.exit_code, 6) << full.err;
}

}  // namespace
}  // namespace gantry::testing
